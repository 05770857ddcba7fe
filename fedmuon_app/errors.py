"""The one exception that a user should see as a sentence, not as a traceback."""


class InputError(ValueError):
    """Something the user can mend: the message names what, its value, and what is allowed."""
