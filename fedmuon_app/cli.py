"""The ``fedmuon`` command: Hydra in front, an engine behind."""

import json
import math
import os
import re
import shlex
import shutil
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.plugins.sweeper import Sweeper
from hydra.types import RunMode

from fedmuon_app.config import COMPOSING, Config, conf_dir, explain, help_text, in_quotes, register
from fedmuon_app.errors import InputError, RunError
from fedmuon_app.federation.folder import CHECKPOINT, FAILED, finished
from fedmuon_app.federation.stopping import sign
from fedmuon_app.federation.summary import summary
from fedmuon_app.interrupt import INTERRUPT
from fedmuon_app.sweep import check_batch, plan, progress, stop
from fedmuon_app.terminal import tolerate

PATHS = ("dataset.path", "run_dir", "resume", "engine.root_certificates", "hydra.run.dir", "hydra.sweep.dir")
PLAIN = re.compile(r"[\w./:+%@?*$\\ -]*", re.ASCII)  # characters that Hydra takes without quotes


def main() -> None:
    """Let Hydra run what the command line asks for. What it cannot do is one sentence, and a status that is not 0."""
    tolerate()
    if sys.argv[1:2] in (["predict"], ["export"]):
        use(sys.argv[1:])
        return
    words = sys.argv[1:] = [quoted(word) for word in sys.argv[1:]]
    if asked := {"--help", "-h", "--version"} & {*words}:
        print(f"fedmuon {metadata.version('fedmuon-app')}" if "--version" in asked else help_text())
        return
    register()
    wants_tracebacks = os.environ.get("HYDRA_FULL_ERROR") == "1"
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors come here as they are
    see_own(words)
    Sweeper.validate_batch_is_legal = check_batch  # type: ignore[method-assign]
    try:
        hydra.main(config_path=str(conf_dir()), config_name="config", version_base="1.3")(run)()
    except KeyboardInterrupt:
        stop(INTERRUPT.word, INTERRUPT.status)
    except (InputError, RunError) as error:
        stop(str(error), status=2 if isinstance(error, InputError) else 1)
    except Exception as error:
        if wants_tracebacks:
            raise
        if isinstance(error, COMPOSING):
            stop(explain(error, words), status=2)
        if type(error).__name__ == "TerminatedWorkerError":  # joblib's
            stop("a run's process was killed (for memory?); the same command with resume=auto goes on", status=1)
        stop(f"{type(error).__name__}: {error} (HYDRA_FULL_ERROR=1 shows where)", status=1)


def see_own(words: Sequence[str]) -> None:
    """Let modules of the user's be found, here and in Flower's processes: in the current folder, and beside own YAMLs.

    They come last, so that no file there hides a module.
    """
    places = [Path.cwd()]
    for word, value in pairwise([*words, ""]):
        flag, _, joined = word.partition("=")
        if flag in ("--config-dir", "-cd"):
            own = Path(joined or value).absolute()
            places += [own, *sorted(folder for folder in own.glob("*") if folder.is_dir())]
    sys.path += [str(place) for place in places if str(place) not in sys.path]
    os.environ["FEDMUON_PATH"] = os.pathsep.join(map(str, places))


def use(words: Sequence[str]) -> None:
    """``fedmuon predict`` and ``fedmuon export``."""
    from fedmuon_app import predict  # torch

    see_own([])
    try:
        predict.main(words)
    except InputError as error:
        stop(str(error), status=2)


def run(node: Any) -> float | None:
    """One run of Hydra's, in the folder that Hydra made for it. A sweep goes on when one of its runs fails.

    Returns:
        The final accuracy, for a sweeper that looks for the best; 0 of a run that failed.
    """
    tolerate()
    INTERRUPT.install()
    hydra_config = HydraConfig.get()
    many = hydra_config.mode == RunMode.MULTIRUN
    output = Path(hydra_config.runtime.output_dir)
    if many and INTERRUPT.number:
        _tidy(output)
        return 0.0
    config, folder = plan(node, hydra_config.overrides.task, output)
    if config.engine.workers is None and many and hydra_config.runtime.choices["hydra/launcher"] != "basic":
        config.engine.workers = 0  # the runs of a sweep have a core each
    INTERRUPT.hold = False
    try:
        accuracy = train(config, folder)
        _tell(folder, many)
        return accuracy
    except KeyboardInterrupt:
        if not many:
            stop(f"{INTERRUPT.word}{_go_on(folder)}", INTERRUPT.status)
        print(f"fedmuon: {INTERRUPT.word}: {folder}", file=sys.stderr)
        return 0.0
    except (InputError, RunError) as error:
        refused = isinstance(error, InputError)
        if many or not refused:
            _failed(folder, config, str(error))
        if not many:
            stop(str(error) if refused else f"{error}{_go_on(folder)}", status=2 if refused else 1)
        print(f"fedmuon: {error}{progress(folder)}", file=sys.stderr)
        return 0.0
    except Exception as error:
        traceback.print_exc()
        _failed(folder, config, f"{type(error).__name__}: {error}")
        if not many:
            stop(f"{type(error).__name__}: {error}", status=1)
        return 0.0
    finally:
        INTERRUPT.hold = many
        _tidy(output)


def _tell(folder: Path, many: bool) -> None:
    """Where the results of a run are; of one alone what it has come to, of a sweep's how far that is."""
    lines = [f"results: {folder}{progress(folder)}"] if many else [*summary(folder), f"results: {folder}"]
    print("\n".join(lines), flush=True)


def train(config: Config, folder: Path) -> float | None:
    """Run the engine, unless the run is complete; its final accuracy, None where the folder is on another machine.

    Raises:
        InputError: something the user can mend, before training.
        RunError: the run cannot go on.
        KeyboardInterrupt: Ctrl-C or SIGTERM; the checkpoint is written.
    """
    if config.engine.threads > 1:  # read when OpenMP is loaded: threads that spin at their barriers hold each other up
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if config.dry_run:
        from fedmuon_app.dry_run import show

        show(config, folder)
        return None
    from fedmuon_app.engines import ENGINES  # these import torch

    result = finished(folder) if config.resume is not None else None
    if result is None or not complete(result, config):
        (folder / FAILED).unlink(missing_ok=True)
        ENGINES[config.engine.name](config, folder)
        (folder / FAILED).unlink(missing_ok=True)  # of another process, that was refused the folder
    result = finished(folder)
    return None if result is None else _objective(result)


def _objective(result: Mapping[str, Any]) -> float:
    """What a search (hydra/sweeper=optuna, direction=maximize) goes by: the final accuracy, or minus the final loss."""
    metric, final = str(result.get("metric", "test_accuracy")), result.get("final", result.get("final_accuracy"))
    return math.nan if final is None else float(final) * sign(metric)


def complete(result: Mapping[str, Any], config: Config) -> bool:
    """Whether a finished run is all that ``config`` asks for: its rounds, or an end that the same rules brought."""
    same = result.get("stopped") is not None and result["config"].get("stop") == asdict(config.stop)
    return same or int(result["rounds"]) >= config.rounds


def quoted(word: str) -> str:
    """A word of the command line; the path in it quoted where Hydra could not read it otherwise."""
    key, equals, value = word.partition("=")
    plain = PLAIN.fullmatch(value) is not None
    if not equals or key.lstrip("+") not in PATHS or plain or value[:1] in ("'", '"') or "," in value or "${" in value:
        return word
    return f"{key}={in_quotes(value)}"


def _failed(folder: Path, config: Config, reason: str) -> None:
    """Leave failed.json, for reports: unless a complete run is in the folder."""
    from fedmuon_app.federation.environment import versions

    said = {"failed": reason, "config": asdict(config), "versions": versions()}
    if folder.is_dir() and finished(folder) is None:
        (folder / FAILED).write_text(json.dumps(said, indent=2, ensure_ascii=False) + "\n")


def _go_on(folder: Path) -> str:
    """How to go on with the run in ``folder``; empty where nothing can be gone on with."""
    return f" (go on with: fedmuon {shlex.quote(f'resume={folder}')})" if (folder / CHECKPOINT).exists() else ""


def _tidy(output: Path) -> None:
    """Take away a folder of Hydra's that holds nothing but .hydra/: the run was refused, or is elsewhere."""
    made: Sequence[Path] = list(output.iterdir()) if output.is_dir() else []
    if [path.name for path in made] == [".hydra"]:
        shutil.rmtree(output)
