"""Data in the forms that people have it."""

from typing import Any

import datasets
import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset

from fedmuon_app.data.own import as_data, as_examples
from fedmuon_app.errors import InputError

X, Y = np.random.default_rng(0).random((12, 4)), np.arange(12) % 3
TX, TY = torch.from_numpy(X).float(), torch.from_numpy(Y)


class Both:
    def __init__(self) -> None:
        self.train = self.test = TensorDataset(TX, TY)


FORMS: dict[str, Any] = {
    "arrays": ((X, Y), (X, Y)),
    "tensors": ((TX, TY), (TX, TY)),
    "pairs": (list(zip(X, Y, strict=True)), list(zip(X, Y, strict=True))),
    "torch's": (TensorDataset(TX, TY), TensorDataset(TX, TY)),
    "an object": Both(),
    "Hugging Face's": datasets.DatasetDict(
        {part: datasets.Dataset.from_dict({"x": X.tolist(), "label": Y.tolist()}) for part in ("train", "test")}
    ),
    "a table of Hugging Face's": datasets.DatasetDict(
        {
            part: datasets.Dataset.from_dict({**{f"c{k}": X[:, k].tolist() for k in range(4)}, "label": Y.tolist()})
            for part in ("train", "validation")
        }
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_same_examples_in_every_form(form: str) -> None:
    data = as_data(FORMS[form], "own")
    torch.testing.assert_close(data.train.inputs, TX)
    assert torch.equal(data.test.targets, TY)
    assert list(data.classes) == ["0", "1", "2"]


def test_several_inputs_quantities_and_pictures() -> None:
    pairs = [((torch.ones(2), torch.zeros(3)), 0.5)] * 4
    two = as_examples(pairs, "own")
    assert isinstance(two.inputs, tuple)
    assert [x.shape for x in two.inputs] == [(4, 2), (4, 3)]
    assert two.targets.shape == (4, 1)
    named = as_examples([({"a": torch.ones(2)}, [1.0, 0.0])] * 3, "own")
    assert isinstance(named.inputs, dict)
    assert named.targets.shape == (3, 2)
    pictures = datasets.Dataset.from_dict(
        {"img": [Image.new("RGB", (5, 6), (9, 8, 7))] * 2, "label": [0, 1]},
        features=datasets.Features({"img": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])}),
    )
    data = as_data({"train": pictures, "test": pictures}, "own")
    assert data.train.shape == (3, 6, 5)
    assert data.train.at(np.array([0])).inputs[0, :, 0, 0].tolist() == [9, 8, 7]  # type: ignore[call-overload,index]
    assert (list(data.classes), list(data.mean)) == (["cat", "dog"], [0.5] * 3)
    assert data.columns["label"] == ["0", "1"]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (3, "own gives a int: needed is"),
        ({"train": (X, Y)}, "own gives parts train: needed are train and test"),
        (([(1.0, 2)], [(torch.ones(2), 3)]), "its test examples"),
        (([5, 6], [5]), "cannot be read as"),
        (([(torch.ones(2), 0), (torch.ones(3), 1)], [(torch.ones(2), 0)]), "cannot be read as"),
    ],
)
def test_what_is_none_is_one_sentence(said: Any, why: str) -> None:
    with pytest.raises(InputError, match=why) as caught:
        as_data(said, "own")
    assert "\n" not in str(caught.value)
