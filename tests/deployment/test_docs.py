"""The commands of docs/deployment.md, as they stand there: only names of hosts and places are replaced."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from fedmuon_app.engines.flwr import QUIET
from fedmuon_app.engines.superlink import free_port, listens, stage_app
from tests.deployment.cluster import BIN, wait_for
from tests.deployment.invariant import same_X_as_one_process

PAGE = Path(__file__).parents[2] / "docs" / "deployment.md"


class Shell:
    """A home, a working folder and the processes of this page's reader."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.processes = folder, list[psutil.Popen]()
        self.port = free_port()
        self.replaced = {
            "server.example.org:8000": f"127.0.0.1:{self.port}",
            "--host 0.0.0.0 --port 8000": f"--host 127.0.0.1 --port {self.port}",
            "server.example.org": "127.0.0.1",
            "9094": str(free_port()),
            "9095": str(free_port()),
            "/etc/fedmuon": str(folder),
            "/var/lib/fedmuon": str(folder / "var"),
            "rounds=100": "rounds=1",
            "rounds=200": "rounds=2",
        }
        home = {"HOME": str(folder), "FLWR_HOME": str(folder / ".flwr"), "XDG_CACHE_HOME": str(folder / "cache")}
        self.env = dict(psutil.Process().environ()) | QUIET | home
        self.env["PATH"] = f"{BIN}:{self.env['PATH']}"

    def run(self, command: str) -> str:
        for written, here in self.replaced.items():
            command = command.replace(written, here)
        if command.startswith("flower-"):
            with (self.folder / f"{len(self.processes)}.log").open("ab") as log:
                self.processes.append(
                    psutil.Popen(
                        ["bash", "-c", f"exec {command}"], cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL,
                        stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                    )
                )  # fmt: skip
            if "superlink " in command:
                wait_for(lambda: listens(self.port), 60)
            return ""
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env=self.env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    one = Shell(tmp_path)
    stage_app(tmp_path)  # the clone
    yield one
    for process in one.processes:
        subprocess.run(["pkill", "-KILL", "-s", str(process.pid)], check=False)


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_page_leads_to_a_run_its_resume_and_its_end(shell: Shell) -> None:
    (config,) = blocks("toml")
    (shell.folder / ".flwr").mkdir()
    for written, here in shell.replaced.items():
        config = config.replace(written, here)
    (shell.folder / ".flwr" / "config.toml").write_text(config)
    said, run_id = {}, ""
    for block in blocks("bash"):
        for command in block.splitlines():
            if command.startswith("flwr supernode list"):
                wait_for(lambda: shell.run("flwr supernode list ours").count("online") == 2, 60)
            said[command] = shell.run(command.replace("RUN-ID", run_id))
            if command.startswith("fedmuon engine"):
                (run_id,) = re.findall(r"run (\d+) on", said[command])
            elif command.startswith("flwr run"):
                (run_id,) = re.findall(r"started run (\d+)", said[command])
    run = shell.folder / "var" / "run"
    assert (run / "metrics.jsonl").read_text().count("test_accuracy") == 2
    same_X_as_one_process(run, ["federation.num_clients=2", "federation.clients_per_round=2", "rounds=2"])
    assert any("round 1: accuracy" in text for command, text in said.items() if command.startswith("flwr log"))
    kept = {file.parent.name for file in (shell.folder / "var").rglob("*-*.safetensors")}
    assert kept == {"0", "1"}
