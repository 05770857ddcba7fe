"""docker/ as it stands: the image, the compose file's services, and docker/README.md's commands, by podman."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.deployment.cluster import wait_for

DOCKER = Path(__file__).parents[2] / "docker"
SERVICES = yaml.safe_load((DOCKER / "services.yaml").read_text())["services"]
COMPOSE = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]
NETWORK, IMAGE = "fedmuon-test", "fedmuon:0.1.0"
SUPERLINK = "10.77.1.7"  # podman's own names are lost when a container is restarted

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(shutil.which("podman") is None, reason="containers need podman"),
]


def said(*command: str, fails: bool = False) -> str:
    done = subprocess.run(command, cwd=DOCKER.parent, capture_output=True, text=True, check=False)
    assert fails or done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def inside(service: str, *command: str) -> str:
    return said("podman", "exec", f"{NETWORK}-{service}", *command)


def start(service: str) -> None:
    """As compose does, but for its order: a service of compose.yaml with what it extends in services.yaml."""
    own = COMPOSE[service]
    base = SERVICES[own["extends"]["service"]]
    environment = {**base.get("environment", {}), **own.get("environment", {})}
    options = [f"--env={key}={plain(value)}" for key, value in environment.items()]
    options += [f"--volume={NETWORK}-{place}" for place in own["volumes"]]
    options += [f"--cap-drop={one}" for one in base["cap_drop"]]
    options += [f"--security-opt={one.replace(':true', '')}" for one in base["security_opt"]]
    detached = [] if base["restart"] == "no" else ["--detach", f"--restart={base['restart']}"]
    own_address = [f"--ip={SUPERLINK}"] if service == "superlink" else []
    said(
        "podman", "run", "--init", "--name", f"{NETWORK}-{service}", "--network", NETWORK, *own_address,
        f"--add-host=superlink:{SUPERLINK}", *options, *detached, base["image"], *map(plain, base["command"]),
    )  # fmt: skip


def plain(word: str) -> str:
    """A word of a compose file as the container gets it: with defaults in place of variables."""
    return re.sub(r"(?<!\$)\$\{\w+:?-([^}]*)\}", r"\1", word).replace("$$", "$")


@pytest.fixture(scope="module", autouse=True)
def _services() -> Iterator[None]:
    """The image is built where it is not there."""
    if subprocess.run(["podman", "image", "exists", IMAGE], check=False).returncode:
        said("podman", "build", "--format", "docker", "-f", str(DOCKER / "Dockerfile"), "-t", IMAGE, ".")
    said("podman", "network", "create", "--internal", "--disable-dns", f"--subnet={SUPERLINK}/24", NETWORK)
    try:
        for service in COMPOSE:
            start(service)
        yield
    finally:
        for service in COMPOSE:
            said("podman", "rm", "--force", "--time=5", "--volumes", f"{NETWORK}-{service}", fails=True)
        said("podman", "network", "rm", NETWORK, fails=True)
        for volume in {place.split(":")[0] for one in COMPOSE.values() for place in one["volumes"]}:
            said("podman", "volume", "rm", f"{NETWORK}-{volume}", fails=True)


def healthy(service: str, name: str) -> bool:
    """Whether the health check that compose would make passes."""
    dockerfile = (DOCKER / "Dockerfile").read_text()
    command = SERVICES[name].get("healthcheck", {}).get("test", [])[1:]
    if not command:
        command = json.loads(
            dockerfile[dockerfile.index("CMD [", dockerfile.index("HEALTHCHECK")) + 4 :].split("\n")[0]
        )
    return (
        subprocess.run(
            ["podman", "exec", f"{NETWORK}-{service}", *command], check=False, capture_output=True
        ).returncode
        == 0
    )


def train(rounds: int, *more: str) -> str:
    return inside(
        "serverapp", "fedmuon", "engine=deployment", "engine.superlink=superlink:8000",
        "engine.root_certificates=/certs/ca.crt", "run_dir=/var/lib/fedmuon/run", "federation.num_clients=2",
        "federation.clients_per_round=2", f"rounds={rounds}", "evaluation.every=1", *more,
    )  # fmt: skip


def test_the_services_train_over_tls_and_go_on_after_a_restart_of_each() -> None:
    wait_for(lambda: healthy("superlink", "superlink"), 60)
    for i in (0, 1):
        assert "registered successfully" in inside(
            "serverapp", "flwr", "supernode", "register", f"/certs/node-{i}.pub", "ours"
        )
    for i in (0, 1):  # they were refused until now, and compose starts them again after a while
        said("podman", "restart", f"{NETWORK}-supernode-{i}")
        wait_for(lambda i=i: healthy(f"supernode-{i}", "supernode"), 60)
    assert "round 2/2" in train(2)
    assert "uid=10001" in inside("serverapp", "id")
    for service in ("superlink", "serverapp", "supernode-0", "supernode-1"):
        said("podman", "restart", f"{NETWORK}-{service}")
    wait_for(lambda: healthy("superlink", "superlink"), 60)
    again = train(4, "resume=auto")
    assert "round 4/4" in again
    assert "round 2/4" not in again
