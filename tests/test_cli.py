import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from fedmuon_app import cli
from fedmuon_app.config import Config, names
from fedmuon_app.config.load import run_name
from fedmuon_app.engines import ENGINES
from fedmuon_app.federation.checkpoint import rounds_in
from fedmuon_app.interrupt import INTERRUPT
from tests.deployment.cluster import wait_for

SMALL = ["rounds=2", "evaluation.every=1", "local.steps=1", "local.batch_size=8"]


@pytest.fixture
def fedmuon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # noqa: ANN201
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for key in ("HYDRA_FULL_ERROR", "FEDMUON_PATH"):
        monkeypatch.setenv(key, "")
        monkeypatch.delenv(key)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def run(*words: str) -> None:
        monkeypatch.setattr(sys, "argv", ["fedmuon", *words])
        cli.main()

    yield run
    INTERRUPT.__init__()  # type: ignore[misc]
    for number, handler in handlers.items():
        signal.signal(number, handler)


def refused(fedmuon, capsys: pytest.CaptureFixture[str], *words: str) -> str:  # noqa: ANN001
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        fedmuon(*words)
    assert stop.value.code in (1, 2)
    out, err = capsys.readouterr()
    assert "round" not in out  # before any training
    (line,) = err.splitlines()
    assert line.startswith("fedmuon: ")
    return line


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("federation.clients_per_round=17", "federation.clients_per_round = 17"),
        ("partition.beta=0", "partition.beta = 0"),
        ("algorithm.lmo.steps=-1", "algorithm.lmo.steps = -1"),
        ("algorithm.lr=0", "algorithm.lr = 0"),
        ("algorithm=fedprox", "fedavg, fedavg_adam, fedmuon, localmuon, muloco, scaffold, scaffold_adam"),
        ("sead=1", "sead is no key"),
        ("dataset.path=/nowhere", "dataset.path = /nowhere is not there"),
        ("device=cuda:99", "device = cuda:99: torch sees"),
        ("engine=deployment", "run_dir = None: must be an absolute path on the SuperLink's machine"),
        ("dataset=image_folder", "dataset.path = None is not a folder"),
    ],
)
def test_bad_input_is_one_sentence_and_a_status(fedmuon, capsys, word: str, said: str) -> None:  # noqa: ANN001
    assert said in refused(fedmuon, capsys, *SMALL, word)


def test_a_bad_value_in_a_sweep_stops_it_before_its_first_run(fedmuon, capsys, tmp_path: Path) -> None:  # noqa: ANN001
    assert "algorithm.lr = -1.0" in refused(fedmuon, capsys, "-m", *SMALL, "algorithm.lr=0.1,-1")
    assert not list(tmp_path.rglob("metrics.jsonl"))


def test_a_run_and_its_folder(fedmuon, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: ANN001
    fedmuon(*SMALL, "hydra.run.dir=here")
    assert f"results: {tmp_path / 'here'}" in capsys.readouterr().out
    assert {entry.name for entry in (tmp_path / "here").iterdir()} == {
        ".hydra", "checkpoint.safetensors", "clients", "cohorts.jsonl", "labels.csv", "metrics.jsonl", "model.json",
        "model.safetensors", "result.json",
    }  # fmt: skip


def test_a_run_goes_on_by_its_folder_alone(fedmuon, tmp_path: Path, capsys) -> None:  # noqa: ANN001
    fedmuon(*SMALL, "algorithm=localmuon", "run_dir=here", "hydra.run.dir=a")
    fedmuon("resume=here", "rounds=3", "hydra.run.dir=b")
    result = json.loads((tmp_path / "here" / "result.json").read_text())
    assert (result["algorithm"], result["rounds"], result["config"]["local"]["steps"]) == ("localmuon", 3, 1)
    capsys.readouterr()
    fedmuon("resume=here", "hydra.run.dir=b")  # complete
    out, _ = capsys.readouterr()
    assert out.splitlines()[0] == "final accuracy  0.1309 after round 3"
    assert out.splitlines()[-1] == f"results: {tmp_path / 'here'}"
    for words, said in (
        (["resume=nowhere"], "there is no checkpoint.safetensors in it"),
        (["resume=here", "seed=3"], "seed = 3: the run to resume in"),
        (["run_dir=here", *SMALL], "holds a run already: choose another folder, or go on with resume"),
        (["run_dir=here", "resume=auto", *SMALL], "algorithm.name = fedmuon: the run to resume in"),
    ):
        assert said in refused(fedmuon, capsys, *words, "hydra.run.dir=b")


def test_an_interrupted_sweep_runs_what_is_missing(fedmuon, tmp_path: Path, capsys) -> None:  # noqa: ANN001
    words = ["-m", *SMALL, "seed=0,1,2", "resume=auto", f"hydra.sweep.dir={tmp_path}/sweep"]
    fedmuon(*words)
    one, two, _ = runs = sorted((tmp_path / "sweep").glob("*seed*"))
    (two / "result.json").unlink()  # as if it had been killed at its very end
    for file in runs[2].iterdir():  # as if it had never begun
        if file.is_file():
            file.unlink()
    before = (one / "result.json").stat().st_mtime_ns
    fedmuon(*words)
    assert (one / "result.json").stat().st_mtime_ns == before
    assert all((run / "result.json").exists() for run in runs)


def test_a_sweep_has_a_folder_a_run(fedmuon, tmp_path: Path) -> None:  # noqa: ANN001
    fedmuon("-m", *SMALL, "algorithm=fedmuon,localmuon", "seed=0,1", f"hydra.sweep.dir={tmp_path}/sweep")
    results = [json.loads(file.read_text()) for file in sorted((tmp_path / "sweep").rglob("result.json"))]
    assert [(r["algorithm"], r["seed"]) for r in results] == [
        ("fedmuon", 0), ("fedmuon", 1), ("localmuon", 0), ("localmuon", 1),
    ]  # fmt: skip
    assert {r["config"]["engine"]["workers"] for r in results} == {0}


def test_a_sweep_goes_on_when_a_run_diverges_and_says_so_at_its_end(fedmuon, tmp_path: Path, capsys) -> None:  # noqa: ANN001
    rates = "algorithm.lr=1e30,0.1"
    with pytest.raises(SystemExit) as stop:
        fedmuon("-m", *SMALL[1:], "rounds=4", "algorithm=fedavg", "algorithm.momentum=heavy_ball", rates,
                "local.steps=2", f"hydra.sweep.dir={tmp_path}/sweep")  # fmt: skip
    assert stop.value.code == 1
    out, err = capsys.readouterr()
    assert "1 of the sweep's runs failed" in err.splitlines()[-1]
    assert f"results: {tmp_path / 'sweep'} (1 runs complete, 1 failed)" in out
    (reason,) = (tmp_path / "sweep").glob("fedavg_lr-1e*/failed.json")
    said = json.loads(reason.read_text())
    assert "the step size is too large" in said["failed"]
    (finished,) = (tmp_path / "sweep").rglob("result.json")
    result = json.loads(finished.read_text())
    config = result["config"]
    assert said["versions"] == result["versions"]
    assert config["algorithm"]["lr"] == 0.1
    assert said["config"].keys() == config.keys()
    assert said["config"]["algorithm"] == {**config["algorithm"], "lr": 1e30}


def test_what_a_refused_process_says_of_a_folder_in_use_is_gone_when_the_run_there_completes(
    fedmuon,  # noqa: ANN001
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    train = ENGINES["in_process"]

    def train_while_another_is_refused(config: Config, folder: Path) -> None:
        (folder / "failed.json").write_text("{}")
        train(config, folder)

    monkeypatch.setitem(ENGINES, "in_process", train_while_another_is_refused)
    fedmuon("-m", *SMALL, f"hydra.sweep.dir={tmp_path}", "hydra/launcher=basic")
    (folder,) = tmp_path.glob("local*")
    assert (folder / "result.json").exists()
    assert not (folder / "failed.json").exists()


# Hydra's own features


OWN = """# @package _global_
rounds: 2
local: {steps: 1, batch_size: 8}
evaluation: {every: 1}
"""


def test_a_folder_of_ones_own_configurations(fedmuon, tmp_path: Path) -> None:  # noqa: ANN001
    for file, text in (("experiment/my.yaml", OWN), ("algorithm/my.yaml", "name: fedavg\nlr: 0.3\n")):
        (tmp_path / "mine" / file).parent.mkdir(parents=True)
        (tmp_path / "mine" / file).write_text(text)
    fedmuon("--config-dir", "mine", "experiment=my", "algorithm=my", "hydra.run.dir=here")
    result = json.loads((tmp_path / "here" / "result.json").read_text())
    assert (result["config"]["algorithm"]["lr"], result["rounds"]) == (0.3, 2)


def test_a_wrong_key_in_such_a_file_is_said_in_our_words(fedmuon, capsys, tmp_path: Path) -> None:  # noqa: ANN001
    (tmp_path / "mine" / "experiment").mkdir(parents=True)
    (tmp_path / "mine" / "experiment" / "my.yaml").write_text("# @package _global_\nalgorithm: {mu: 0.1}\n")
    said = refused(fedmuon, capsys, "--config-dir", "mine", "experiment=my")
    assert "algorithm.mu is no key" in said
    assert "full_key" not in said


def test_a_sweep_over_what_a_glob_finds(fedmuon, tmp_path: Path) -> None:  # noqa: ANN001
    fedmuon("-m", *SMALL, "algorithm=glob(sca*)", f"hydra.sweep.dir={tmp_path}/sweep")
    found = sorted(json.loads(f.read_text())["algorithm"] for f in (tmp_path / "sweep").rglob("result.json"))
    assert found == ["scaffold", "scaffold_adam"]


def test_an_experiment_that_is_a_sweep_takes_further_values(fedmuon, tmp_path: Path) -> None:  # noqa: ANN001
    words = [*SMALL, "dataset=digits", "algorithm.lmo.steps=1", "partition.beta=10", "hydra/launcher=basic"]
    fedmuon("experiment=paper/newton_schulz_steps", "seed=3,4", *words, "hydra.sweep.dir=sweep")
    assert sorted(json.loads(f.read_text())["seed"] for f in (tmp_path / "sweep").rglob("result.json")) == [3, 4]


def test_what_an_experiment_varies_is_checked_too(fedmuon, capsys, tmp_path: Path) -> None:  # noqa: ANN001
    (tmp_path / "mine" / "experiment").mkdir(parents=True)
    text = "# @package _global_\nhydra: {mode: MULTIRUN, sweeper: {params: {algorithm.alpha: '0.1,3'}}}\n"
    (tmp_path / "mine" / "experiment" / "my.yaml").write_text(text)
    assert "algorithm.alpha = 3.0: must lie in (0, 1]" in refused(
        fedmuon, capsys, "--config-dir", "mine", "experiment=my"
    )


def test_a_run_returns_its_final_accuracy_for_a_sweeper_to_judge(fedmuon, tmp_path: Path, monkeypatch) -> None:  # noqa: ANN001
    returned = []
    original = cli.run
    monkeypatch.setattr(cli, "run", lambda node: returned.append(original(node)))
    fedmuon(*SMALL, "hydra.run.dir=here")
    assert returned == [json.loads((tmp_path / "here" / "result.json").read_text())["final_accuracy"]]


@pytest.mark.slow
def test_optuna_looks_for_the_best_step_size(fedmuon, tmp_path: Path) -> None:  # noqa: ANN001
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    fedmuon(
        "-m", *SMALL, "hydra/sweeper=optuna", "hydra/launcher=basic", "hydra.sweeper.direction=maximize",
        "algorithm=fedavg", "hydra.sweeper.n_trials=6", "algorithm.lr=tag(log,interval(0.01,1e3))",
        "hydra.sweep.dir=sweep",
    )  # fmt: skip
    results = [json.loads(f.read_text()) for f in (tmp_path / "sweep").rglob("result.json")]
    failed = list((tmp_path / "sweep").rglob("failed.json"))
    assert len(results) + len(failed) == 6
    best = (tmp_path / "sweep" / "optimization_results.yaml").read_text()
    assert f"best_value: {max(r['final_accuracy'] for r in results)}" in best


WORDS = {
    "sead=3": "sead is no key (do you mean seed?): the top level has rounds, seed",
    "lr=0.1": "lr is no key (do you mean algorithm.lr?)",
    "algorithm.lmo.step=3": "algorithm.lmo.step is no key (do you mean algorithm.lmo.steps?)",
    "algorithm=fedmoun": "algorithm = fedmoun is unknown (do you mean fedmuon?): choose one of "
    + ", ".join(names("algorithm")),
    "hydra/launcher=submitit_nowhere": "hydra/launcher = submitit_nowhere is unknown",
    "model=custom": "model._target_ is not given: set model._target_=…",
    "rounds": "rounds is no override: write key=value",
    "algorithm.lr=(1)": "quote the value twice: \"algorithm.lr='(1)'\"",
    "dataset.classes=[a": "dataset.classes=[a cannot be read",
    "rounds=many": "rounds: Value 'many' of type 'str' could not be converted to Integer",
}


@pytest.mark.parametrize("word", sorted(WORDS))
def test_hydras_words_are_ours(fedmuon, capsys, word: str) -> None:  # noqa: ANN001
    assert WORDS[word] in refused(fedmuon, capsys, word)


@pytest.mark.parametrize(
    "folder",
    ["grüße", "it's", 'say "hi"', "a=b", "a (b)", "a [b]", "a{b}", "~tilde", "semi;colon", "100%", "tab\there", "日本"],
)
def test_paths_need_no_quotes_of_hydras(fedmuon, tmp_path: Path, folder: str, capsys) -> None:  # noqa: ANN001
    fedmuon(*SMALL, f"hydra.run.dir={tmp_path}/{folder}")
    assert (tmp_path / folder / "result.json").exists()
    assert f"dataset.path = {tmp_path}/{folder}/data is not there" in refused(
        fedmuon, capsys, *SMALL, "dataset=cifar10", f"dataset.path={tmp_path}/{folder}/data"
    )


def test_a_path_at_home(fedmuon, capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN001
    monkeypatch.setenv("HOME", str(tmp_path))
    assert f"dataset.path = {tmp_path}/photos is not there" in refused(fedmuon, capsys, *SMALL, "dataset.path=~/photos")
    fedmuon(*SMALL, "run_dir=~/run")
    assert (tmp_path / "run" / "result.json").exists()


# What is refused, and what is left behind


def test_a_refused_run_leaves_the_folder_of_a_finished_one_as_it_was(fedmuon, capsys, tmp_path: Path) -> None:  # noqa: ANN001
    fedmuon(*SMALL, "hydra.run.dir=here")
    before = {f: f.read_bytes() for f in sorted((tmp_path / "here").rglob("*")) if f.is_file()}
    for words in (["seed=7"], ["seed=7", "resume=auto"]):
        refused(fedmuon, capsys, *SMALL, "hydra.run.dir=here", *words)
    capsys.readouterr()
    fedmuon(*SMALL, "hydra.run.dir=here", "resume=auto")  # complete
    assert {f: f.read_bytes() for f in sorted((tmp_path / "here").rglob("*")) if f.is_file()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["here"]


@pytest.mark.parametrize(
    "word", ["seed=-1", "dataset.path=/nowhere", "model=custom model._target_=no.such.Net", "dataset.validation=1e-9"]
)
def test_a_refused_run_leaves_no_folder(fedmuon, capsys, tmp_path: Path, word: str) -> None:  # noqa: ANN001
    refused(fedmuon, capsys, *SMALL, *word.split())
    assert not list(tmp_path.rglob("*.yaml"))
    assert not [path for path in tmp_path.rglob("*") if path.is_dir() and path.name == ".hydra"]


def test_a_run_elsewhere_has_its_configuration_with_it(fedmuon, tmp_path: Path) -> None:  # noqa: ANN001
    fedmuon(*SMALL, f"run_dir={tmp_path}/there")
    assert (tmp_path / "there" / ".hydra" / "overrides.yaml").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_a_sweep_grows_and_shrinks(fedmuon, tmp_path: Path, capsys) -> None:  # noqa: ANN001
    words = ["-m", *SMALL, "algorithm=fedavg", "hydra.sweep.dir=sweep", "resume=auto", "hydra/launcher=basic"]
    fedmuon(*words, "algorithm.lr=0.01,0.1")
    first = {f: f.stat().st_mtime_ns for f in (tmp_path / "sweep").rglob("result.json")}
    fedmuon(*words, "algorithm.lr=0.001,0.01,0.1")
    grown = {f: f.stat().st_mtime_ns for f in (tmp_path / "sweep").rglob("result.json")}
    assert len(grown) == 3
    assert first.items() <= grown.items()
    fedmuon(*words, "algorithm.lr=0.1")
    assert {f: f.stat().st_mtime_ns for f in (tmp_path / "sweep").rglob("result.json")} == grown
    assert not list((tmp_path / "sweep").rglob("failed.json"))


def test_a_sweep_over_rounds_has_a_folder_for_each(fedmuon, tmp_path: Path) -> None:  # noqa: ANN001
    fedmuon("-m", *SMALL[1:], "rounds=1,2", "hydra.sweep.dir=sweep", "hydra/launcher=basic")
    assert sorted(json.loads(f.read_text())["rounds"] for f in (tmp_path / "sweep").rglob("result.json")) == [1, 2]


def test_a_sweep_is_not_started_over_another_ones_runs(fedmuon, capsys, tmp_path: Path) -> None:  # noqa: ANN001
    words = ["-m", "hydra.sweep.dir=sweep", "hydra/launcher=basic", "seed=0,1"]
    fedmuon(*words, *SMALL)
    capsys.readouterr()
    assert "holds a run already" in refused(fedmuon, capsys, *words, *SMALL)
    assert "algorithm.name = fedavg: the run to resume in" in refused(
        fedmuon, capsys, *words, *SMALL, "resume=auto", "algorithm=fedavg",
        "hydra.sweep.subdir=local.batch_size-8_local.steps-1_seed-${seed}",
    )  # fmt: skip


def test_a_sweeps_run_that_dies_of_anything_leaves_its_reason_and_is_counted(
    fedmuon,  # noqa: ANN001
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(config: Config, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        raise ZeroDivisionError("by nothing")

    monkeypatch.setitem(ENGINES, "in_process", broken)
    with pytest.raises(SystemExit) as stop:
        fedmuon("-m", *SMALL, "seed=0,1", "hydra.sweep.dir=sweep", "hydra/launcher=basic")
    assert stop.value.code == 1
    reasons = [json.loads(f.read_text())["failed"] for f in (tmp_path / "sweep").rglob("failed.json")]
    assert reasons == ["ZeroDivisionError: by nothing"] * 2
    assert "2 of the sweep's runs failed" in capsys.readouterr().err


def test_a_run_that_diverges_fails_each_time_it_is_retried(fedmuon, tmp_path: Path, capsys) -> None:  # noqa: ANN001
    words = ["algorithm=fedavg", "algorithm.lr=1e30", "rounds=7", "hydra.run.dir=seven", "resume=auto"]
    for _ in range(4):
        with pytest.raises(SystemExit) as stop:
            fedmuon(*words)
        assert stop.value.code == 1
        *_, last = capsys.readouterr().err.splitlines()
        assert "no good reply in 3 rounds in a row: not finite after 5 local steps" in last
    assert not (tmp_path / "seven" / "result.json").exists()
    assert "no good reply" in json.loads((tmp_path / "seven" / "failed.json").read_text())["failed"]


# In processes of their own


@contextmanager
def command(*words: str, **more: str) -> Iterator[subprocess.Popen[str]]:
    """The command in a group of processes of its own, of which nothing is left."""
    program = [sys.executable, "-m", "fedmuon_app", *words]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])} | more
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    run = subprocess.Popen(program, env=environment, text=True, start_new_session=True, **pipes)
    try:
        yield run
    finally:
        with suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
        run.wait()


@pytest.mark.slow
@pytest.mark.parametrize(("number", "word"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")])
def test_a_run_that_is_interrupted_says_how_to_go_on(number: int, word: str, tmp_path: Path) -> None:
    cohorts = tmp_path / "my run" / "cohorts.jsonl"
    with command("rounds=5000", "evaluation.every=1000", f"hydra.run.dir={tmp_path}/my run") as run:
        wait_for(lambda: cohorts.exists() and cohorts.stat().st_size > 0, 120)
        os.killpg(run.pid, number)
        _, err = run.communicate(timeout=60)
    assert err == f"fedmuon: {word} (go on with: fedmuon 'resume={tmp_path}/my run')\n"
    assert run.returncode == 128 + number
    assert rounds_in(tmp_path / "my run") >= cohorts.read_text().count("\n") - 1


@pytest.mark.slow
@pytest.mark.parametrize("all_of_them", [True, False], ids=["by Ctrl-C", "by its id"])
def test_a_sweep_that_is_interrupted_keeps_each_runs_last_round(all_of_them: bool, tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    words = ["-m", "rounds=5000", "evaluation.every=1000", "seed=0,1,2", "hydra.launcher.n_jobs=2"]
    with command(*words, f"hydra.sweep.dir={folder}") as run:
        wait_for(lambda: sum(f.stat().st_size > 0 for f in folder.glob("*/cohorts.jsonl")) == 2, 120)
        (os.killpg if all_of_them else os.kill)(run.pid, signal.SIGINT)
        _, err = run.communicate(timeout=60)
    assert run.returncode == 130
    assert f"interrupted: 0 of 3 runs in {folder} are complete; the same command with resume=auto goes on" in err
    assert "Traceback" not in err
    begun = [f.parent for f in folder.glob("*/cohorts.jsonl")]
    assert len(begun) == 2
    assert all(rounds_in(one) >= (one / "cohorts.jsonl").read_text().count("\n") - 1 for one in begun)
    assert all(rounds_in(one) > 0 for one in begun)
    assert not list(folder.rglob("failed.json"))


@pytest.mark.slow
def test_a_model_beside_the_command_is_found_and_one_that_is_not_there_is_looked_for_aloud(tmp_path: Path) -> None:
    (tmp_path / "mymodel.py").write_text("from fedmuon_app.models.lenet import LeNet\nclass Net(LeNet): pass\n")
    (tmp_path / "random.py").write_text("raise SystemExit('this hides a module of Python')")
    program = Path(sys.executable).parent / "fedmuon"
    words = [*SMALL, "model=custom", "engine.workers=0"]
    run = subprocess.run([program, *words, "model._target_=mymodel.Net"], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    run = subprocess.run([program, *words, "model._target_=other.Net"], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 2
    assert f"No module named 'other' (looked in the current folder, {tmp_path}, and among what" in run.stderr


@pytest.mark.slow
def test_a_terminal_without_the_characters_of_a_folder_ends_no_run(tmp_path: Path) -> None:
    with command(*SMALL, "engine.workers=0", f"hydra.run.dir={tmp_path}/grüße", PYTHONIOENCODING="ascii") as run:
        out, err = run.communicate(timeout=120)
    assert run.returncode == 0, err
    assert "gr\\xfc\\xdfe" in out


@pytest.mark.slow
def test_help_the_version_and_a_misspelt_key_come_without_torch() -> None:
    for words, status in ((["--help"], 0), (["--version"], 0), (["sead=1"], 2)):
        script = (
            "import sys; from fedmuon_app.cli import main; sys.argv[1:] = " + repr(words) + "\n"
            "try: main()\nexcept SystemExit as e: code = e.code\nelse: code = 0\n"
            f"assert code == {status}, code\nassert 'torch' not in sys.modules"
        )
        subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


def test_help_explains_every_key(capsys, fedmuon) -> None:  # noqa: ANN001
    fedmuon("--help")
    out, _ = capsys.readouterr()
    assert out.startswith("fedmuon: federated learning with Muon")
    for line in out.split("what they mean")[1].split("What each choice")[0].splitlines()[1:]:
        assert not line.strip() or line.rstrip().endswith(":") or "#" in line, line
    for name in names("algorithm"):
        assert name in out


def test_the_names_of_runs() -> None:
    words = ["seed=0", "algorithm=fedmuon", "algorithm.lr=0.01", "rounds=3"]
    assert run_name(words, ["rounds"]) == "fedmuon_lr-0.01_seed-0"
    assert run_name(["algorithm.lr=0.01", "seed=0", "algorithm=fedmuon"], []) == "fedmuon_lr-0.01_seed-0"
    assert run_name(["rounds=3"], ["rounds"]) == "run"
    long = [run_name([f"dataset.path=/{'x' * 300}{i}"], []) for i in (1, 2)]
    assert long[0] != long[1]
    assert max(map(len, long)) < 140
    assert run_name(["dataset.path=/a/b"], []) != run_name(["dataset.path=/a-b"], [])
