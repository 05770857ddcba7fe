"""Every random draw of a run: a function of the seed, a purpose and what it is drawn for."""

import zlib

import numpy as np


def rng(seed: int, purpose: str, *key: int) -> np.random.Generator:
    """A generator of its own for (seed, purpose, key): the same on every machine and engine.

    Two purposes never share a stream, so that drawing more for one changes nothing for another.
    """
    return np.random.default_rng([seed, zlib.crc32(purpose.encode()), *key])


def integer_seed(seed: int, purpose: str, *key: int) -> int:
    """The same, as an integer in [0, 2³¹) for libraries that take only that."""
    return int(rng(seed, purpose, *key).integers(2**31))
