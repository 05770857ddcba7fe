import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedmuon_app.data.batches import minibatch


@given(st.integers(1, 200), st.integers(1, 70), st.integers(0, 5), st.integers(0, 3))
def test_an_epoch_has_each_example_once(m: int, B: int, client: int, epoch: int) -> None:
    steps = -(-m // B)
    batches = [minibatch(0, client, epoch * steps + k, m, B) for k in range(steps)]
    assert sorted(np.concatenate(batches).tolist()) == list(range(m))
    assert all(1 <= len(batch) <= B for batch in batches)


def test_a_small_client_uses_what_it_has() -> None:
    assert sorted(minibatch(0, 0, 7, 3, 64).tolist()) == [0, 1, 2]


def test_seed_client_and_epoch_each_change_the_order() -> None:
    base = minibatch(0, 0, 0, 100, 100).tolist()
    assert minibatch(0, 0, 0, 100, 100).tolist() == base
    assert base != minibatch(1, 0, 0, 100, 100).tolist()
    assert base != minibatch(0, 1, 0, 100, 100).tolist()
    assert base != minibatch(0, 0, 1, 100, 100).tolist()
