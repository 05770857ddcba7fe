"""docs/security.md's door, to the letter, and a SuperLink whose certificate lacks its own machine's names."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedmuon_app import certs
from fedmuon_app.certs import issue
from fedmuon_app.engines.superlink import stage_app
from tests.deployment.cluster import wait_for
from tests.deployment.machines import NETWORK, Machine, machines, missing
from tests.deployment.test_docs import CERTS, blocks, run, superlink

PAGE = Path(__file__).parents[2] / "docs" / "security.md"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
if why := missing():
    pytestmark.append(pytest.mark.skip(reason=why))


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[Machine, Machine]]:
    with machines(tmp_path / "two", ["server", "site0"], {"server.example.org": f"{NETWORK}.1"}) as found:
        server, site = found["server"], found["site0"]
        stage_app(server.folder)
        run(server, f"fedmuon-certs {CERTS} --server server.example.org --nodes 1")
        site.path(CERTS).mkdir()
        for name in ("ca.crt", "node-0"):
            shutil.copy(server.path(CERTS) / name, site.path(CERTS) / name)
        yield server, site


def config_of(machine: Machine, address: str) -> None:
    (machine.folder / ".flwr").mkdir(exist_ok=True)
    (toml,) = [text for _, kind, text in blocks("3") if kind == "toml"]
    (machine.folder / ".flwr" / "config.toml").write_text(toml.replace("server.example.org:8000", address))


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_the_door_lets_sites_in_and_nothing_else(two: tuple[Machine, Machine]) -> None:
    server, site = two
    ((conf, commands),) = re.findall(
        r"^```nginx\n(.*?)^```.*?^```bash\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    server.path("/etc/fedmuon/nginx.conf").write_text(conf)
    for command, log in zip(commands.splitlines(), ("superlink.log", "nginx.log"), strict=True):
        port = 8001 if "superlink" in command else 8000
        server.start(command, log)
        wait_for(lambda port=port: server.run(f"exec 3<>/dev/tcp/127.0.0.1/{port}").returncode == 0, 60)
    config_of(server, "127.0.0.1:8001")
    run(server, f"flwr supernode register {CERTS}/node-0.pub ours")
    (node,) = [text for name, _, text in blocks("4") if name == "site0"]
    site.start(node.replace("num-partitions=3", "num-partitions=1"), "supernode.log")
    wait_for(lambda: "online" in server.run("flwr supernode list ours").stdout, 60)
    config_of(site, "server.example.org:8000")
    for refused in ("flwr list ours", f"flwr supernode register {CERTS}/node-0.pub ours", "flwr run . ours"):
        done = site.run(f"cd {server.folder} && {refused}")
        assert done.returncode != 0, done.stdout
    assert site.run("exec 3<>/dev/tcp/server.example.org/8001").returncode != 0
    words = "federation.num_clients=1 federation.clients_per_round=1 rounds=1 run_dir=/var/lib/fedmuon/run"
    said = run(
        server,
        f"fedmuon engine=deployment engine.superlink=127.0.0.1:8001 engine.root_certificates={CERTS}/ca.crt {words}",
    )
    assert "round 1/1  accuracy" in said


@pytest.mark.long  # a minute of waiting
def test_a_superlink_whose_certificate_lacks_its_own_names(
    two: tuple[Machine, Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, _ = two
    for name in ("server.pem", "server.key"):
        (server.path(CERTS) / name).unlink()
    monkeypatch.setattr(certs, "OWN", ())
    issue(server.path(CERTS), ["server.example.org"], 0)
    (command,) = [text for _, _, text in blocks("3") if text.startswith("flower-superlink")]
    superlink(server, command)
    words = "engine=deployment engine.superlink=server.example.org:8000 run_dir=/var/lib/fedmuon/run"
    done = server.run(f"fedmuon {words} engine.root_certificates={CERTS}/ca.crt")
    assert done.returncode == 1
    assert "was still pending after 60 s, and is stopped" in done.stderr
    assert re.search("(IP address|Hostname) mismatch", (server.folder / "superlink.log").read_text())
    config_of(server, "server.example.org:9999")
    assert (
        "Connection to the SuperLink is unavailable"
        in server.run("flwr list ours").stderr + server.run("flwr list ours").stdout
    )
