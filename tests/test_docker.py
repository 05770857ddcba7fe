"""The containers' commands and health checks, run as plain processes: there need be no Docker engine."""

import os
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from fedmuon_app.engines.flwr import QUIET
from fedmuon_app.engines.superlink import free_port
from tests.deployment.cluster import BIN, wait_for

DOCKER = Path(__file__).parents[1] / "docker"
SERVICES: dict[str, Any] = yaml.safe_load((DOCKER / "services.yaml").read_text())["services"]


def test_the_image_has_the_versions_of_the_constraints() -> None:
    pinned, dockerfile = ((DOCKER.parent / name).read_text() for name in ("constraints.txt", "docker/Dockerfile"))
    for line in ("torch==2.14.1", "torchvision==0.29.1"):
        assert line in pinned.splitlines()
        assert line in dockerfile


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_services_train_a_round(tmp_path: Path) -> None:
    port, ports = free_port(), [free_port(), free_port()]
    (tmp_path / "certs").mkdir()
    started: list[psutil.Popen] = []

    def environment(service: str, more: dict[str, str]) -> dict[str, str]:
        home = {"HOME": str(tmp_path / service), "FLWR_HOME": str(tmp_path / service / "flwr"),
                "XDG_CACHE_HOME": str(tmp_path / "cache")}  # fmt: skip
        (tmp_path / service / "flwr").mkdir(parents=True, exist_ok=True)
        return os.environ | QUIET | home | {"PATH": f"{BIN}:{os.environ['PATH']}"} | more

    def here(word: str, service: str, runtime: int) -> str:
        for written, place in (
            ("$$", "$"), ("/certs", str(tmp_path / "certs")), ("/var/lib/fedmuon", str(tmp_path / service)),
            ("superlink:8000", f"localhost:{port}"), ("8000", str(port)), ("0.0.0.0", "127.0.0.1"),
            ("9094", str(runtime)),
        ):  # fmt: skip
            word = word.replace(written, place)
        return word

    def words(name: str, service: str, key: str = "command", runtime: int = 0) -> list[str]:
        command = SERVICES[name][key] if key == "command" else SERVICES[name]["healthcheck"]["test"][1:]
        return [here(word, service, runtime) for word in command]

    def start(name: str, service: str, more: dict[str, str] | None = None, runtime: int = 0) -> None:
        with (tmp_path / f"{service}.log").open("ab") as log:
            started.append(
                psutil.Popen(
                    words(name, service, runtime=runtime), env=environment(service, more or {}),
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                )
            )  # fmt: skip

    def flwr(*command: str) -> str:
        env = environment("serverapp", {})
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    healthy = "import socket; socket.create_connection(('localhost', 8000), 3)"
    assert healthy in (DOCKER / "Dockerfile").read_text()
    try:
        names = {"SERVER_NAMES": "superlink localhost", "NODES": "2"}
        subprocess.run(words("certs", "certs"), env=environment("certs", names), check=True)
        start("superlink", "superlink")
        check = [str(BIN / "python"), "-c", here(healthy, "superlink", 0)]
        wait_for(lambda: subprocess.run(check, capture_output=True, check=False).returncode == 0, 60)
        start("serverapp", "serverapp")
        config = (DOCKER / "flwr.toml").read_text()
        (tmp_path / "serverapp" / "flwr" / "config.toml").write_text(here(config, "serverapp", 0))
        for i in range(2):
            flwr("flwr", "supernode", "register", str(tmp_path / "certs" / f"node-{i}.pub"), "ours")
            numbers = {"NODE": str(i), "NODES": "2", "SUPERLINK": f"localhost:{port}", "NODE_CONFIG": ""}
            start("supernode", f"client-{i}", numbers, ports[i])
        for i in range(2):
            check_node = words("supernode", f"client-{i}", "healthcheck", ports[i])
            check_node[0] = str(BIN / "python")
            wait_for(lambda c=check_node: subprocess.run(c, capture_output=True, check=False).returncode == 0, 60)
        flwr(
            "fedmuon", "engine=deployment", f"engine.superlink=localhost:{port}", "rounds=1",
            f"engine.root_certificates={tmp_path / 'certs' / 'ca.crt'}", f"run_dir={tmp_path / 'run'}",
            "federation.num_clients=2", "federation.clients_per_round=2", f"hydra.run.dir={tmp_path / 'hydra'}",
        )  # fmt: skip
        assert (tmp_path / "run" / "result.json").exists()
        assert {file.parent.name for file in tmp_path.glob("client-*/clients/*/*/*.safetensors")} == {"0", "1"}
    finally:
        for process in started:
            subprocess.run(["pkill", "-KILL", "-s", str(process.pid)], check=False)
