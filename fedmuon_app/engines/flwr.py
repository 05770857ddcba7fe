"""The ``flwr`` command, pointed at one SuperLink. Its exit codes lie; its JSON does not."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import tomli_w

from fedmuon_app.config import Config, dump
from fedmuon_app.errors import RunError

PATIENCE = 3  # times that a SuperLink is asked how a run stands
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


def run_config(folder: Path, c: Config) -> Path:
    """The file by which ``flwr run`` takes a whole configuration, in ``folder``."""
    file = folder / "run_config.toml"
    file.write_text(tomli_w.dumps({"resolved": dump(c)}))
    return file


class FlowerError(RunError):
    """Flower refused or failed a run; the message holds its words."""


class Flwr:
    """``flwr`` with a home of its own that knows one SuperLink."""

    def __init__(self, home: Path, address: str, root_certificates: Path | None) -> None:
        """Write the home.

        Args:
            home: its FLWR_HOME, an empty folder.
            address: host:port of the SuperLink.
            root_certificates: of its authority; None: no TLS.
        """
        # Flower finds its other programs on the PATH, where a virtual environment's may not be
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
        self.env = os.environ | QUIET | {"FLWR_HOME": str(home), "RAY_TMPDIR": str(home), "PATH": path}
        trust = f'root-certificates = "{root_certificates}"' if root_certificates else "insecure = true"
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "own"\n\n[superlink.own]\naddress = "{address}"\n{trust}\n'
        )

    def submit(self, app: Path, run_config: Path, federation: str = "") -> str:
        """Submit a run; its id.

        Args:
            app: folder of the app.
            run_config: TOML file.
            federation: of a simulation, e.g. ``num-supernodes=4``.

        Raises:
            FlowerError: it is refused.
        """
        more = ["--federation-config", federation] if federation else []
        answer = self._json("run", str(app), "own", "--run-config", str(run_config), *more)
        if not answer.get("success"):
            raise FlowerError(f"Flower refuses the run: {answer.get('error-message', answer)}")
        return str(answer["run-id"])

    def status(self, run_id: str) -> tuple[str, str]:
        """The run's status, e.g. ``finished:completed``, and what Flower says of it.

        Raises:
            FlowerError: the SuperLink does not say, asked PATIENCE times.
        """
        for _ in range(PATIENCE):
            answer = self._json("list", "own", "--run-id", run_id)
            if answer.get("runs"):
                (run,) = answer["runs"]
                return str(run["status"]), str(run.get("status-details") or "")
            time.sleep(1)
        raise FlowerError(f"flwr list: {answer.get('error-message', answer)}")

    def stop_run(self, run_id: str) -> None:
        """End the run."""
        self._json("stop", run_id, "own")

    def log(self, run_id: str) -> subprocess.Popen[str]:
        """A process that prints the run's log until the run has ended."""
        command = ["flwr", "log", run_id, "own", "--stream"]
        return subprocess.Popen(
            command, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def _json(self, *words: str) -> Any:
        done = subprocess.run(
            ["flwr", *words, "--format", "json"], env=self.env, capture_output=True, text=True, check=False
        )
        try:
            return json.loads(done.stdout)
        except json.JSONDecodeError:
            raise FlowerError(f"flwr {words[0]}: {done.stdout.strip()} {done.stderr.strip()}") from None
