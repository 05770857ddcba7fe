import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fedmuon_app.models.cnn import CNN
from fedmuon_app.models.lenet import LeNet
from fedmuon_app.models.resnet import resnet18_gn


@pytest.mark.parametrize(("padding", "features"), [(2, 400), (0, 256)])
@pytest.mark.parametrize("group_norm", [False, True])
def test_lenet_has_its_published_layers(padding: int, features: int, group_norm: bool) -> None:
    model = LeNet(padding=padding, group_norm=group_norm)
    shapes = {w: tuple(p.shape) for w, p in model.named_parameters() if w.endswith("weight") and p.ndim > 1}
    assert list(shapes.values()) == [(6, 1, 5, 5), (16, 6, 5, 5), (120, features), (84, 120), (10, 84)]
    assert model(torch.rand(2, 1, 28, 28)).shape == (2, 10)
    norms = [(m.num_groups, m.num_channels) for m in model.modules() if isinstance(m, nn.GroupNorm)]
    assert norms == ([(2, 6), (4, 16)] if group_norm else [])


@pytest.mark.parametrize("group_norm", [False, True])
def test_pooling_before_relu_with_eight_channels_is_the_same_function(group_norm: bool) -> None:
    model = LeNet(group_norm=group_norm)
    x = torch.randn(3, 1, 28, 28)
    y = model.norm1(F.max_pool2d(F.relu(model.conv1(x)), 2))
    y = model.norm2(F.max_pool2d(F.relu(model.conv2(y)), 2)).flatten(1)
    torch.testing.assert_close(model(x), model.fc3(F.relu(model.fc2(F.relu(model.fc1(y))))))


def test_resnet_18_keeps_its_size_and_has_no_batch_norm() -> None:
    model = resnet18_gn()
    assert sum(p.numel() for p in model.parameters()) == 11_173_962
    assert {m.num_groups for m in model.modules() if isinstance(m, nn.GroupNorm)} == {8}
    assert not list(model.buffers())
    x = torch.rand(1, 3, 32, 32)
    assert model(x).shape == (1, 10)
    assert model.layer1(model.relu(model.bn1(model.conv1(x)))).shape[-2:] == (32, 32)  # nothing shrinks before layer 2


@pytest.mark.parametrize(("widths", "size"), [((32, 64, 64), 32), ((8, 16), 28)])
def test_the_cnn(widths: tuple[int, ...], size: int) -> None:
    model = CNN(num_classes=7, in_channels=1, widths=widths)
    x = torch.randn(5, 1, size, size)
    assert model(x).shape == (5, 7)
    torch.testing.assert_close(model(x)[:2], model(x[:2]))  # no example looks at another
    assert sum(isinstance(layer, torch.nn.Conv2d) for layer in model) == len(widths)
