import pytest
import torch
from torch import nn

from fedmuon_app.data.examples import Examples
from fedmuon_app.errors import InputError
from fedmuon_app.trial import try_model
from tests.test_objective import DATA, Small, objective


def test_a_model_whose_buffers_change_is_refused() -> None:
    with pytest.raises(InputError, match=r"running_mean.*GroupNorm or LayerNorm in place of BatchNorm"):
        try_model(objective(lambda: Small(nn.BatchNorm1d(8))), DATA.test, 10)


def test_constant_buffers_are_fine() -> None:
    middle = nn.ReLU()
    middle.register_buffer("constant", torch.ones(3))
    try_model(objective(lambda: Small(middle)), DATA.test, 10)


def test_a_wrong_number_of_classes_is_refused() -> None:
    with pytest.raises(InputError, match=r"model\.num_classes=10"):
        try_model(objective(lambda: Small(nn.ReLU(), classes=7)), DATA.test, 10)


def test_images_that_do_not_fit_are_refused() -> None:
    colour = Examples(DATA.test.inputs.expand(-1, 3, -1, -1), DATA.test.targets)
    with pytest.raises(InputError, match="cannot take inputs of 3×28×28"):
        try_model(objective(), colour, 10)


def test_what_no_gradient_reaches_is_not_trained() -> None:
    class Spare(Small):
        def __init__(self) -> None:
            super().__init__(nn.ReLU())
            self.spare = nn.Linear(3, 3)

    p = objective(Spare)
    before = p.state_dict(p.X0())["spare.weight"]
    try_model(p, DATA.test, 10)
    assert not any(name.startswith("spare") for name in p.parameters)
    assert len(p.X0()) == sum(x.numel() for name, x in p.model.named_parameters() if not name.startswith("spare"))
    assert torch.equal(p.state_dict(p.X0())["spare.weight"], before)
