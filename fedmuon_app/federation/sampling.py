"""Which S of the n clients train in a round."""

from collections.abc import Sequence

from fedmuon_app.seeds import rng


def cohort(seed: int, round_: int, clients: Sequence[int], S: int) -> list[int]:
    """S_r: ``S`` of ``clients`` without replacement, sorted; a function of the seed and the round alone."""
    return sorted(rng(seed, "cohort", round_).choice(sorted(clients), size=S, replace=False).tolist())
