"""The exceptions that a user should see as a sentence, not as a traceback."""


class InputError(ValueError):
    """Something the user can mend: the message names what, its value, and what is allowed."""


class RunError(RuntimeError):
    """A run, or one client of it, cannot go on: the message says why."""


class SiteError(RunError):
    """What a node tells the server: the message names no path, and no value of its data."""
