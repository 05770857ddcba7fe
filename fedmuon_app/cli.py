"""The ``fedmuon`` command: Hydra in front, an engine behind."""

import contextlib
import itertools
import json
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from hydra.types import RunMode

from fedmuon_app.build import refuse_another_run
from fedmuon_app.config import Config, conf_dir, load, register, resumed, typed
from fedmuon_app.engines import ENGINES
from fedmuon_app.errors import InputError, RunError
from fedmuon_app.federation.checkpoint import CHECKPOINT, config_of
from fedmuon_app.federation.runlog import FAILED, finished
from fedmuon_app.federation.versions import versions


class Failures(Callback):
    """Hydra calls it at the end of a sweep, whose runs were in processes of their own."""

    files: ClassVar[list[Path]] = []

    def on_multirun_end(self, config: Any, **kwargs: Any) -> None:
        """Find what failed."""
        self.files[:] = sorted(Path(config.hydra.sweep.dir).glob(f"*/{FAILED}"))


def main() -> None:
    """Check every run that the command line asks for, then let Hydra run them."""
    args = get_args_parser().parse_args()
    if not (args.help or args.hydra_help or args.info or args.cfg or args.shell_completion):
        try:
            for overrides in runs(args.overrides, args.multirun):
                load(overrides)
        except InputError as error:
            stop(str(error), status=2)
    register()
    hydra.main(config_path=str(conf_dir()), config_name="config", version_base="1.3")(run)()
    if Failures.files:
        stop(f"{len(Failures.files)} of the sweep's runs failed: {', '.join(map(str, Failures.files))}", status=1)


def run(node: Any) -> None:
    """One run of Hydra's, in the folder that Hydra made for it. A sweep goes on when one of its runs fails."""
    hydra_config = HydraConfig.get()
    many, config = hydra_config.mode == RunMode.MULTIRUN, typed(node)
    folder = Path(config.run_dir or hydra_config.runtime.output_dir).absolute()
    try:
        if config.resume == "auto":
            refuse_another_run(config, folder)
        elif config.resume is not None:
            folder = Path(str(config.resume)).absolute()
            config = resumed(str(folder), config_of(folder), hydra_config.overrides.task)
        config.run_dir = str(folder)
        if config.engine.workers is None and many and hydra_config.runtime.choices["hydra/launcher"] != "basic":
            config.engine.workers = 0  # the runs of a sweep have a core each
        if config.resume is None or not complete(config, folder):
            train(config, folder)
        _no_failure(folder)  # of another process, that was refused the folder
        print(f"results: {folder}")
    except (InputError, RunError) as error:
        if not many:
            stop(str(error), status=2 if isinstance(error, InputError) else 1)
        print(f"fedmuon: {error}", file=sys.stderr)
        said = {"failed": str(error), "config": asdict(config), "versions": versions()}
        (folder / FAILED).write_text(json.dumps(said, indent=2, ensure_ascii=False) + "\n")


def train(config: Config, folder: Path) -> None:
    """Run the engine. SIGTERM unwinds like Ctrl-C, so that a checkpoint is written and nothing is left behind.

    Raises:
        InputError: something the user can mend, before training.
        RunError: the run cannot go on.
    """
    _no_failure(folder)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        ENGINES[config.engine.name](config, folder)
    except (RunError, KeyboardInterrupt) as error:
        if not (folder / CHECKPOINT).exists():
            raise
        raise RunError(f"{error or 'interrupted'} (go on with: fedmuon resume={folder})") from error


def _no_failure(folder: Path) -> None:
    with contextlib.suppress(OSError):  # the engine says what is wrong with the folder
        (folder / FAILED).unlink()


def complete(config: Config, folder: Path) -> bool:
    """Whether the run to resume needs no more rounds."""
    result = finished(folder)
    return result is not None and int(result["rounds"]) >= config.rounds


def runs(overrides: list[str], multirun: bool) -> Iterator[list[str]]:
    """The overrides of each run: one, or with -m every combination of the values that are listed.

    Raises:
        InputError: an override that cannot be parsed.
    """
    if not multirun:
        yield overrides
        return
    try:
        parsed = OverridesParser.create().parse_overrides(overrides)
    except HydraException as error:
        raise InputError(" ".join(str(error).split())) from error
    choices = [
        [f"{o.get_key_element()}={value}" for value in o.sweep_string_iterator()] if o.is_sweep_override() else [word]
        for o, word in zip(parsed, overrides, strict=True)
    ]
    for combination in itertools.product(*choices):
        yield list(combination)


def stop(sentence: str, status: int) -> None:
    """End the program with one sentence on standard error."""
    print(f"fedmuon: {sentence}", file=sys.stderr)
    sys.exit(status)
