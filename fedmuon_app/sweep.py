"""What Hydra is asked to do before, after and between the runs of a sweep; a run alone is checked here too."""

import json
import re
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from hydra.plugins.sweeper import Sweeper
from omegaconf import OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from fedmuon_app.config import Config, explain, resumed, typed
from fedmuon_app.errors import InputError
from fedmuon_app.federation.folder import FAILED, METRICS, RESULT, SWEEP, sweep_of
from fedmuon_app.interrupt import INTERRUPT


class Runs(Callback):
    """Checks what is asked for before Hydra writes anything, and counts what came of a sweep."""

    def on_run_start(self, config: Any, **kwargs: Any) -> None:
        """A run alone: refuse it, or tell Hydra its folder."""
        with _refusing(config):
            HydraConfig.instance().set_config(config)  # its folder's name depends on what was chosen
            planned, folder = plan(config, config.hydra.overrides.task, Path(config.hydra.run.dir))
            elsewhere = config.run_dir is not None or config.resume not in (None, "auto")
            if elsewhere and planned.engine.name != "deployment" and not _given(config, "hydra.run.dir"):
                _set(config, "hydra.run.dir", str(folder))
            if planned.resume is not None and (folder / METRICS).exists():
                _set(config, "hydra.output_subdir", None)  # what it has is of its first life

    def on_multirun_start(self, config: Any, **kwargs: Any) -> None:
        """A sweep: what all runs share is checked, and what tells them apart goes into the names of their folders."""
        INTERRUPT.install()
        INTERRUPT.hold = True
        params = config.hydra.sweeper.get("params") or {}
        given = [word.partition("=") for word in config.hydra.overrides.task]
        given += [(key, "=", str(value)) for key, value in params.items()]
        varied = [key for key, _, value in given if re.search(r"[,(]", value)]
        left_out = config.hydra.job.config.override_dirname.exclude_keys
        kept = [key for key in left_out if not any(name.startswith(key) for name in varied)]
        with read_write(config.hydra), open_dict(config.hydra):
            config.hydra.overrides.hydra.append(f"hydra.job.config.override_dirname.exclude_keys=[{','.join(kept)}]")
            config.hydra.job.config.override_dirname.exclude_keys = kept

    def on_multirun_end(self, config: Any, **kwargs: Any) -> None:
        """Say how many runs are complete, and end with a status that tells of the others."""
        folder = Path(config.hydra.sweep.dir)
        complete, failed = (sorted(folder.rglob(name)) for name in (RESULT, FAILED))
        total = sweep_of(folder)[0]
        if INTERRUPT.number:
            runs = f"{len(complete)} of {total} runs" if total else f"{len(complete)} runs"
            go_on = "the same command with resume=auto goes on"
            stop(f"{INTERRUPT.word}: {runs} in {folder} are complete; {go_on}", INTERRUPT.status)
        print(f"results: {folder} ({len(complete)} runs complete{f', {len(failed)} failed' if failed else ''})")
        if failed:
            stop(f"{len(failed)} of the sweep's runs failed: {_some(failed)}", status=1)


def check_batch(self: Sweeper, batch: Sequence[Sequence[str]]) -> None:
    """What a sweeper asks before it launches: that each of these runs can be.

    In place of Hydra's own, which composes each: runs that differ in plain values share what was composed, so that
    hundreds are checked in seconds.
    """
    master: Any = self.config
    assert self.hydra_context is not None
    loader = self.hydra_context.config_loader
    composed: dict[tuple[str, ...], Any] = {}
    folder, before = Path(master.hydra.sweep.dir), 0
    there = folder.is_dir()
    for words in batch:
        chosen, values = _apart(words)
        with _refusing(master, words):
            if chosen not in composed:
                composed[chosen] = loader.load_sweep_config(master, list(words))
            config = composed[chosen]
            with read_write(config), open_dict(config), read_write(config.hydra):
                for key, value in values.items():
                    OmegaConf.update(config, key, value)
                config.hydra.overrides.task = list(words)
            typed(config)
            if there:
                HydraConfig.instance().set_config(config)
                name = str(config.hydra.sweep.subdir)
                plan(config, words, folder / name)
                before += (folder / name / RESULT).exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / SWEEP).write_text(json.dumps({"runs": len(batch), "before": before, "began": time.time()}) + "\n")
    except OSError as error:
        stop(f"{folder} cannot be written ({error.strerror}): name another with hydra.sweep.dir=FOLDER", status=2)


def plan(node: Any, words: Sequence[str], folder: Path) -> tuple[Config, Path]:
    """The configuration of a run, and its folder, which is Hydra's unless another is named.

    Args:
        node: what Hydra has composed.
        words: the overrides that it was composed with.
        folder: Hydra's.

    Raises:
        InputError: a value cannot be, or the folder holds a run that is not to be, or cannot be, resumed.
    """
    config = typed(node)
    named = config.run_dir if config.resume in (None, "auto") else config.resume
    place = Path(named).expanduser() if named else folder
    elsewhere = config.engine.name == "deployment"  # the folder is on the server's machine, where alone it can be seen
    if elsewhere and (named is None or not place.is_absolute()):
        raise InputError(f"run_dir = {named}: must be an absolute path on the SuperLink's machine, for the results")
    if config.resume not in (None, "auto"):
        from fedmuon_app.federation.checkpoint import config_of  # imports torch

        config = resumed(str(place), config_of(place), list(words))
    elif not elsewhere and any((place / name).exists() for name in (METRICS, RESULT)):
        if config.resume is None:
            raise InputError(f"run_dir = {place} holds a run already: choose another folder, or go on with resume=auto")
        from fedmuon_app.experiment import refuse_another_run  # imports torch

        refuse_another_run(config, place)
    config.run_dir = str(place.absolute())
    return config, place.absolute()


def progress(folder: Path) -> str:
    """How far the sweep of the run in ``folder`` is: "  (3 of 8 runs, 0:12:00 left)"; empty where that is unknown."""
    total, before, began = sweep_of(folder.parent)
    ended = [file for name in (RESULT, FAILED) for file in folder.parent.glob(f"*/{name}")]
    now = sum(file.stat().st_mtime >= began for file in ended)
    if not total or not now:
        return ""
    left = timedelta(seconds=round((time.time() - began) / now * max(0, total - before - now)))
    return f"  ({before + now} of {total} runs, {left} left)"


def stop(sentence: str, status: int) -> NoReturn:
    """End the program with one sentence on standard error."""
    print(f"fedmuon: {sentence}", file=sys.stderr)
    sys.exit(status)


@contextmanager
def _refusing(config: Any, words: Sequence[str] | None = None) -> Any:
    """End the program with a sentence where a configuration cannot be: Hydra takes an exception for a warning here."""
    try:
        yield
    except InputError as error:
        stop(str(error), status=2)
    except (HydraException, OmegaConfBaseException) as error:
        stop(explain(error, words or list(config.hydra.overrides.task)), status=2)


def _apart(words: Iterable[str]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Words that choose or add something, and plain values by key."""
    chosen, values = [], {}
    for word in words:
        key, _, value = word.partition("=")
        nested = "." in key and key[0] not in "+~" and not key.startswith("hydra")
        if nested or key in ("seed", "rounds", "device", "compute"):
            values[key] = OmegaConf.from_dotlist([f"x={value}"]).x if value else None
        else:
            chosen.append(word)
    return (*chosen, *sorted(values)), values


def _given(config: Any, key: str) -> bool:
    return any(word.partition("=")[0] == key for word in config.hydra.overrides.hydra)


def _set(config: Any, key: str, value: Any) -> None:
    with read_write(config), open_dict(config), read_write(config.hydra):
        OmegaConf.update(config, key, value)


def _some(files: Sequence[Path], most: int = 5) -> str:
    return ", ".join(map(str, files[:most])) + (f" and {len(files) - most} more" if len(files) > most else "")
