"""The decoder: causal, its positions, and which of its parameters are Muon's."""

import pytest
import torch

from fedmuon_app.algorithms.client import initial_state, local_round
from fedmuon_app.algorithms.methods import Hyper, Method
from fedmuon_app.algorithms.steps import Muon, Sgd
from fedmuon_app.data.examples import Batch
from fedmuon_app.errors import InputError
from fedmuon_app.models.gpt import GPT, rotated
from fedmuon_app.objective import Objective
from fedmuon_app.tasks.inputs import Plain
from fedmuon_app.tasks.language_model import LanguageModel

TOKENS = torch.randint(11, (3, 9), generator=torch.Generator().manual_seed(0))


def objective(**more: object) -> Objective:
    return Objective(
        lambda: GPT(11, layers=1, width=16, heads=2), 0, torch.device("cpu"), LanguageModel(), Plain, **more
    )  # type: ignore[arg-type]


@pytest.mark.parametrize("positions", ["rotary", "learned"])
def test_no_token_sees_what_follows_and_places_matter(positions: str) -> None:
    model = GPT(11, layers=2, width=16, heads=2, positions=positions, length=9).eval()
    scores = model(TOKENS)
    assert scores.shape == (3, 9, 11)
    changed = TOKENS.clone()
    changed[:, 6:] = 0
    torch.testing.assert_close(model(changed)[:, :6], scores[:, :6])
    assert not torch.allclose(model(TOKENS.roll(1, 1))[:, 1:], scores[:, :-1], atol=1e-3)


def test_rotary_positions_keep_lengths_and_depend_on_distances_alone() -> None:
    q, k = torch.randn(2, 1, 1, 12, dtype=torch.float64)
    many = [rotated(x.expand(1, 20, 12).contiguous()) for x in (q, k)]
    torch.testing.assert_close(many[0].norm(dim=-1), q.norm().expand(1, 20))
    products = many[0][0] @ many[1][0].T
    for distance in (1, 5):
        torch.testing.assert_close(products.diagonal(-distance), products.diagonal(-distance)[:1].expand(20 - distance))


def test_the_embedding_takes_the_vectors_rule_and_qkv_is_three_matrices() -> None:
    layout = objective().layout
    assert "embedding.weight" in layout.vectors
    assert [w for w in layout.matrices if "qkv" in w] == ["blocks.0.qkv.weight"]
    assert layout.matrix_shapes.count(torch.Size((16, 16))) == 4  # three of qkv, and out
    assert len(objective(split={}).layout.matrix_shapes) == 4


def test_every_matrix_of_a_stack_is_orthogonal_by_itself() -> None:
    p = objective()
    X = p.X0()
    batch = Batch(TOKENS[:, :-1], TOKENS[:, 1:])
    method = Method(Muon(T=None, scale="one"), Sgd())
    update, _ = local_round(
        method, Hyper(0.1, 0.1), p.layout, p.gradient, X, X[:0], initial_state(method, p.layout, X), [batch]
    )
    step = p.layout.views(update.X - X)["blocks.0.qkv.weight"] / 0.1
    for part in step.chunk(3):
        s = torch.linalg.svdvals(part)
        torch.testing.assert_close(s[s > 1e-3], torch.ones_like(s[s > 1e-3]), atol=1e-3, rtol=0)


def test_a_split_that_cannot_be_is_one_sentence() -> None:
    with pytest.raises(InputError, match="is not 5 matrices, one above the other"):
        objective(split={"*.up.weight": 5})
    with pytest.raises(InputError, match=r"algorithm.lmo.split = head fits no parameter"):
        objective(split={"head": 2})


def test_a_stack_of_clients_is_one_after_the_other() -> None:
    p = objective()
    X, weights = p.X0(), torch.full((3,), 1 / 3)
    loss, g = p.weighted_gradient(X, (TOKENS[:, :-1], TOKENS[:, 1:], weights))
    expected, expected_g = p.gradient(X, Batch(TOKENS[:, :-1], TOKENS[:, 1:]))
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(g, expected_g, atol=1e-6, rtol=1e-4)
