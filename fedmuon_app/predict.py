"""``fedmuon predict`` and ``fedmuon export``: the model of a finished run, on new pictures and for other programs."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from fedmuon_app.config import build_target, refuse_others
from fedmuon_app.data.pictures import picture
from fedmuon_app.errors import InputError
from fedmuon_app.federation.folder import ABOUT_MODEL, MODEL

FORMATS = (".onnx", ".pt2")
OPSET = 18


class Classifier(nn.Module):
    """A model with its scaling inside: pixels float[B, c, h, w] in 0 … 255 to probabilities float[B, classes]."""

    mean: Tensor
    std: Tensor

    def __init__(self, model: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
        """Put them together; mean and std are per channel, of pixels in [0, 1]."""
        super().__init__()
        self.model = model
        for name, values in (("mean", mean), ("std", std)):
            self.register_buffer(name, torch.tensor(values).view(1, -1, 1, 1) * 255)

    def forward(self, pixels: Tensor) -> Tensor:
        """The probability of each class."""
        return self.model((pixels - self.mean) / self.std).softmax(1)


@dataclass(frozen=True)
class Trained:
    """What a run has left: its classifier, in evaluation mode, the shape [c, h, w] of its images, and their classes."""

    classifier: Classifier
    shape: tuple[int, int, int]
    classes: Sequence[str]

    def probabilities(self, files: Sequence[Path]) -> Tensor:
        """float[len(files), classes], of pictures of any kind.

        Raises:
            InputError: one cannot be read.
        """
        channels, height, width = self.shape
        images = []
        for file in files:
            try:
                image = torch.tensor(picture(file, max(height, width), channels), dtype=torch.float32)
            except (ValueError, OSError) as error:
                raise InputError(f"{file} cannot be read as a picture ({error})") from error
            images.append(nn.functional.interpolate(image[None], (height, width)) if height != width else image[None])
        with torch.no_grad():
            return self.classifier(torch.cat(images))


def trained(run: Path, allow: Sequence[str] = ()) -> Trained:
    """The model of the run in ``run``.

    Args:
        run: its folder, with model.json and model.safetensors.
        allow: modules whose classes may be built, beside the models of conf/: the folder may be somebody else's.

    Raises:
        InputError: they are not there, not whole, or need a module that is not allowed.
    """
    try:
        about: dict[str, Any] = json.loads((run / ABOUT_MODEL).read_text())
        state = load_file(run / MODEL)
        model, given, classes = about["model"], about["input"], [str(name) for name in about["classes"]]
        channels, height, width = (int(size) for size in given["shape"])
    except FileNotFoundError as error:
        raise InputError(f"{run} holds no complete run: {Path(error.filename).name} is not there") from error
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{run}: its model cannot be read ({type(error).__name__}: {error})") from error
    refuse_others("model", model, allow)
    module = build_target("model", model)
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        raise InputError(f"{run}: {MODEL} is not of the model that {ABOUT_MODEL} names") from error
    classifier = Classifier(module, given["mean"], given["std"]).eval()
    return Trained(classifier, (channels, height, width), classes)


def export(model: Trained, file: Path) -> None:
    """Write the classifier for other programs, with any number of images: as ONNX, or as torch.export's .pt2.

    Raises:
        InputError: the file's name is of neither kind, a package is missing, or the model cannot be exported.
    """
    if file.suffix not in FORMATS:
        raise InputError(f"{file}: must end in {' or '.join(FORMATS)}")
    pixels, batch = torch.zeros(2, *model.shape), torch.export.Dim("batch")
    try:
        if file.suffix == ".pt2":
            program = torch.export.export(model.classifier, (pixels,), dynamic_shapes={"pixels": {0: batch}})
            torch.export.save(program, file)
            return
        torch.onnx.export(
            model.classifier, (pixels,), file, input_names=["pixels"], output_names=["probabilities"],
            dynamic_shapes={"pixels": {0: batch}}, opset_version=OPSET, dynamo=True, external_data=False, verbose=False,
        )  # fmt: skip
    except ImportError as error:
        raise InputError(
            f"{file}: ONNX needs a package that is not here ({error.name}): pip install onnx onnxscript"
        ) from error
    except OSError as error:
        raise InputError(f"{file}: it cannot be written ({error.strerror})") from error


def main(words: Sequence[str]) -> None:
    """The two commands.

    Raises:
        InputError: as above.
    """
    parser = argparse.ArgumentParser(prog="fedmuon", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    predict = commands.add_parser("predict", help="class names and probabilities of pictures")
    predict.add_argument("run", type=Path, metavar="RUN", help="the folder of a finished run")
    predict.add_argument("pictures", type=Path, nargs="+", metavar="PICTURE")
    predict.add_argument("--top", type=int, default=3, help="classes a picture (3)")
    predict.add_argument("--json", action="store_true", help="all probabilities, a line of JSON a picture")
    save = commands.add_parser("export", help="the model as one file, its scaling inside")
    save.add_argument("run", type=Path, metavar="RUN", help="the folder of a finished run")
    save.add_argument("file", type=Path, metavar="FILE", help="NAME.onnx or NAME.pt2")
    for command in (predict, save):
        command.add_argument("--allow", nargs="+", default=[], metavar="MODULE", help="modules of models of your own")
    args = parser.parse_args(words)
    model = trained(args.run, args.allow)
    if args.command == "export":
        export(model, args.file)
        print(f"{args.file}: pixels float[B, {', '.join(map(str, model.shape))}] in 0 … 255 to probabilities of "
              f"{len(model.classes)} classes: {', '.join(model.classes)}")  # fmt: skip
        return
    rows = model.probabilities(args.pictures).tolist()
    if args.json:
        for file, row in zip(args.pictures, rows, strict=True):
            print(json.dumps({"file": str(file)} | dict(zip(model.classes, row, strict=True)), ensure_ascii=False))
        return
    table = Table("picture", "class", "probability")
    for file, row in zip(args.pictures, rows, strict=True):
        best = sorted(range(len(row)), key=lambda k: -row[k])[: max(1, args.top)]
        for k in best:
            table.add_row(str(file) if k == best[0] else "", model.classes[k], f"{row[k]:.3f}")
    Console(file=sys.stdout).print(table)
