from fedmuon_app.seeds import rng


def test_a_stream_is_decided_by_all_of_its_key() -> None:
    base = rng(0, "minibatches", 1, 2).integers(2**31, size=4).tolist()
    assert rng(0, "minibatches", 1, 2).integers(2**31, size=4).tolist() == base
    for other in (rng(1, "minibatches", 1, 2), rng(0, "cohort", 1, 2), rng(0, "minibatches", 2, 1)):
        assert other.integers(2**31, size=4).tolist() != base
