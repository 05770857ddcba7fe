import torch

from fedmuon_app.algorithms.layout import Layout

PARAMETERS = {"a": torch.randn(3), "b": torch.randn(2, 3), "c": torch.randn(()), "d": torch.randn(2, 2, 2)}


def test_matrices_come_first_and_views_are_the_parameters() -> None:
    layout = Layout.of(PARAMETERS)
    assert list(layout.shapes) == ["b", "d", "a", "c"]
    assert (layout.in_matrices, len(layout)) == (14, 18)
    x = layout.flat(PARAMETERS)
    assert all(torch.equal(view, PARAMETERS[w]) for w, view in layout.views(x).items())


def test_views_share_the_vectors_memory_and_flat_does_not_share_the_parameters() -> None:
    layout = Layout.of(PARAMETERS)
    x = layout.flat(PARAMETERS)
    layout.views(x)["c"].fill_(7)
    assert x[-1] == 7
    assert PARAMETERS["c"] != 7


def test_an_excluded_matrix_is_among_the_vectors() -> None:
    assert list(Layout.of(PARAMETERS, exclude=["b"]).shapes) == ["d", "a", "b", "c"]


def test_what_is_not_finite_is_named() -> None:
    layout = Layout.of(PARAMETERS)
    x = layout.flat(PARAMETERS)
    assert layout.not_finite(x) == ""
    layout.views(x)["d"][0, 1, 0] = torch.inf
    layout.views(x)["c"].fill_(torch.nan)
    assert layout.not_finite(x) == "d, c"
    assert layout.not_finite(layout.flat(PARAMETERS), x) == "d, c"
    assert layout.not_finite(x * torch.nan) == "b, d, a and 1 more"
