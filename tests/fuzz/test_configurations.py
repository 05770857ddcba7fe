"""Whatever is set: the run finishes with numbers, or one sentence says what cannot be, before training."""

import json
import math
import os
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path

from hypothesis import event, given, settings
from hypothesis import strategies as st

from fedmuon_app.config import flat, load, names
from fedmuon_app.engines import in_process
from fedmuon_app.errors import InputError, RunError

CASES = int(os.environ.get("FEDMUON_FUZZ", "300"))

ODD = (
    "null", "true", "-1", "0", "1", "2.5", "1e-9", "1e30", "-1e30", "nan", "inf", "-inf", "abc", "''", "' '", "[]",
    "[1,2]", "[a]", "{a: 1}", "99999999999999999999", "-99999999999999999999", "é", "1_000", "0x10", "../..", "/",
    "[1.0,2.0,3.0]",
)  # fmt: skip
USUAL = {
    "rounds": ("1", "2", "3"),
    "seed": ("0", "7", "123456789"),
    "compute": ("float32", "bfloat16"),
    "device": ("cpu", "auto"),
    "federation.num_clients": ("1", "2", "5", "40"),
    "federation.clients_per_round": ("1", "2", "5"),
    "local.steps": ("1", "3"),
    "local.batch_size": ("1", "7", "5000"),
    "evaluation.every": ("1", "100"),
    "evaluation.diagnostics": ("1", "3"),
    "checkpoint.every": ("1", "null"),
    "partition": names("partition"),
    "partition.beta": ("0.001", "0.05", "1", "1000"),
    "partition.classes_per_client": ("1", "10", "11"),
    "dataset.validation": ("0.001", "0.5", "0.999"),
    "dataset.augment": ("none", "crop", "crop_flip"),
    "algorithm": names("algorithm"),
    "algorithm.lr": ("1e-8", "0.1", "100"),
    "algorithm.vector_lr": ("0.1", "null"),
    "algorithm.alpha": ("0.001", "1"),
    "algorithm.momentum": ("ema", "heavy_ball"),
    "algorithm.control": ("null", "none", "gradient", "momentum"),
    "algorithm.start": ("zeros", "gradient"),
    "algorithm.schedule": ("constant", "linear", "cosine", "step"),
    "algorithm.warmup": ("0", "1", "2"),
    "algorithm.final": ("0", "1"),
    "algorithm.weight_decay": ("0.1", "100"),
    "algorithm.clip": ("0.1", "1e9"),
    "algorithm.prox": ("0.1", "1e9"),
    "algorithm.outer_lr": ("0.1", "3"),
    "algorithm.outer_momentum": ("0.9",),
    "algorithm.keep_momentum": ("true", "false"),
    "algorithm.beta2": ("0", "0.9"),
    "algorithm.lmo.norm": ("spectral", "euclidean", "max"),
    "algorithm.lmo.steps": ("0", "1", "40"),
    "algorithm.lmo.exact": ("true", "false"),
    "algorithm.lmo.dtype": ("float32", "bfloat16"),
    "algorithm.lmo.scale": ("moonlight", "jordan", "ratio", "one"),
    "algorithm.lmo.exclude": ("[]", "[conv*]", "[nothing]", "['*']"),
    "algorithm.lmo.coefficients": ("[3.4445,-4.775,2.0315]", "[1.5,-0.5,0]"),
    "model.padding": ("0", "1"),
    "model.group_norm": ("true", "false"),
    "model.num_classes": ("10", "9", "null"),
    "model.size": ("28", "12", "[28,28]", "2"),
    "engine.stacked": ("true", "false"),
    "engine.stack_memory": ("0.001", "8"),
}
LONG = ("rounds", "local.steps", "algorithm.lmo.steps")  # keys of which a large value takes long, and is not wrong
NOT_HERE = ("engine.", "resume", "run_dir")  # of other engines, or of where the run lies
KEYS = sorted({*USUAL, *(key for key in flat(asdict(load([]))) if not key.startswith(NOT_HERE))})
SMALL = (
    "rounds=1", "local.steps=1", "local.batch_size=8", "federation.num_clients=4", "federation.clients_per_round=2",
    "engine.workers=0", "evaluation.every=1",
)  # fmt: skip


@st.composite
def words(draw: st.DrawFn) -> list[str]:
    """One to four overrides, mostly of usual values."""
    chosen = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=4, unique=True))
    return [f"{key}={draw(values(key))}" for key in chosen]


def values(key: str) -> st.SearchStrategy[str]:
    odd = st.sampled_from([x for x in ODD if key not in LONG or x not in ("0x10", "1_000")])
    return st.sampled_from(USUAL[key]) | odd if key in USUAL else odd


@settings(max_examples=CASES)
@given(words())
def test_a_run_finishes_or_one_sentence_says_why_not(chosen: list[str]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    try:
        outcome(chosen, folder / "run")
    finally:
        shutil.rmtree(folder)


def outcome(chosen: list[str], folder: Path) -> None:
    try:
        in_process.run(load([*SMALL, *chosen]), folder)
    except InputError as error:
        assert not (folder / "metrics.jsonl").exists()
        sentence(error)
        event("refused")  # counted by --hypothesis-show-statistics
        return
    except RunError as error:
        sentence(error)
        assert not (folder / "result.json").exists()
        event("failed")
        return
    event("finished")
    result = json.loads((folder / "result.json").read_text(), parse_constant=not_json)
    assert 0 <= result["final_accuracy"] <= 1
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        assert all(x is None or math.isfinite(x) for x in json.loads(line, parse_constant=not_json).values())


def sentence(error: Exception) -> None:
    said = str(error)
    assert said
    assert "\n" not in said
    assert "Traceback" not in said
    assert "object at 0x" not in said


def not_json(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")
