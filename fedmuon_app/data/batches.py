"""Which minibatch comes when: a function of (seed, client, local step), whatever engine asks."""

import functools

import numpy as np

from fedmuon_app.data.examples import Indices
from fedmuon_app.seeds import rng


def minibatch(seed: int, client: int, step: int, m: int, batch_size: int) -> Indices:
    """Positions, within a client's m examples, of the minibatch of its local step ``step``.

    An epoch of a client is ⌈m/B⌉ steps: a fresh permutation of its examples, cut into minibatches of B
    (the last one holds what is left). A client with m < B uses what it has.

    Args:
        seed: of the run.
        client: its id.
        step: local steps that this client took before, over all its rounds; from 0.
        m: its number of examples, at least 1.
        batch_size: B.

    Returns:
        int64[b] with 1 <= b <= B, no position twice.
    """
    epoch, k = divmod(step, -(-m // batch_size))
    return _permutation(seed, client, epoch, m)[k * batch_size : (k + 1) * batch_size]


@functools.lru_cache(maxsize=64)  # an epoch is used for several steps, and then never again
def _permutation(seed: int, client: int, epoch: int, m: int) -> Indices:
    return rng(seed, "minibatches", client, epoch).permutation(m).astype(np.int64)
