"""Which rounds of a client count.

A reply can be lost, late or refused, and a server can fall back to its last checkpoint. The client has moved its
C_i each time, and C = (1/n) Σ C_i holds only if it moves back. So each call says which of the client's rounds the
server has counted; the client goes on from there, whatever it did since.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Turn(NamedTuple):
    """When a client was called; later ones are greater.

    Attributes:
        life: of the run: 1, and one more each time it is resumed.
        round: r; 0 asks for C_i^(0).
    """

    life: int
    round: int

    def __str__(self) -> str:
        return f"round {self.round}" + (f" (resume {self.life - 1})" if self.life > 1 else "")


NEVER = Turn(0, 0)


class Counted(NamedTuple):
    """What the server has counted of a client.

    Attributes:
        last: when the client was called for the last reply of its that went into X and C.
        saved: the same as of the last checkpoint: where a resumed run would let it go on.
    """

    last: Turn = NEVER
    saved: Turn = NEVER


Cohort = Mapping[int, Counted]
"""The clients of a round by id, in ascending order."""
