"""docs/deployment.md to the letter: its commands as they stand, in the order of the page, each on its own machine."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from PIL import Image

from fedmuon_app.engines.superlink import stage_app
from fedmuon_app.federation import checkpoint
from tests.deployment.cluster import wait_for
from tests.deployment.invariant import difference, same_X_as_one_process
from tests.deployment.machines import NETWORK, Machine, machines, missing

PAGE = Path(__file__).parents[2] / "docs" / "deployment.md"
NAMES = ("server", "site0", "site1", "site2")
CERTS = "/etc/fedmuon/certs"
WORDS = ["federation.num_clients=3", "federation.clients_per_round=3", "rounds=4", "evaluation.every=1"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
if why := missing():
    pytestmark.append(pytest.mark.skip(reason=why))


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Machine]]:
    """Sections 2 and 3, done."""
    with machines(tmp_path_factory.mktemp("four"), NAMES, {"server.example.org": f"{NETWORK}.1"}) as found:
        server = found["server"]
        stage_app(server.folder)  # the clone
        for section in ("2", "3"):
            for _, kind, text in blocks(section):
                if kind == "toml":
                    (server.folder / ".flwr").mkdir(exist_ok=True)
                    (server.folder / ".flwr" / "config.toml").write_text(text)
                elif text.startswith("flower-superlink"):
                    superlink(server, text)
                else:
                    for command in text.splitlines():
                        run(server, command)
        for i in range(3):  # "take to site 0's machine"
            site = found[f"site{i}"]
            site.path(CERTS).mkdir()
            for name in ("ca.crt", f"node-{i}"):
                shutil.copy(server.path(CERTS) / name, site.path(CERTS) / name)
        yield found


def blocks(section: str) -> list[tuple[str, str, str]]:
    """The blocks of a section of the page: on which machine, of what kind, what is in it."""
    (text,) = re.findall(rf"^## {section}\. .*?(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return re.findall(r"^<!-- on: (\w+) -->\n```(\w+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def run(machine: Machine, command: str) -> str:
    done = machine.run(command)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def superlink(machine: Machine, command: str, log: str = "superlink.log") -> psutil.Popen:
    process = machine.start(command, log)
    wait_for(lambda: machine.run("exec 3<>/dev/tcp/server.example.org/8000").returncode == 0, 60)
    return process


def online(machine: Machine) -> int:
    said = json.loads(run(machine, "flwr supernode list ours --format json"))
    return sum(node["status"] == "online" for node in said["nodes"])


def pictures(folder: Path, **classes: int) -> None:
    draw = np.random.default_rng(len(str(folder)))
    for name, count in classes.items():
        (folder / name).mkdir(parents=True)
        for i in range(count):
            pixels = draw.integers(0, 120, (40, 40, 3)) + (120 if name == "cat" else 0)
            Image.fromarray(pixels.astype(np.uint8)).save(folder / name / f"{i}.png")


def test_a_trial_without_anybodys_data(four: dict[str, Machine]) -> None:
    """Section 4."""
    server, run_id = four["server"], ""
    for name, _, text in blocks("4"):
        if name != "server":
            four[name].start(text, "supernode.log")
            continue
        for command in text.splitlines():
            if command.startswith("flwr supernode list"):
                wait_for(lambda: online(server) == 3, 60)
            said = run(server, command.replace("RUN-ID", run_id))
            if command.startswith("flwr log"):
                assert 'evaluated {"round": 1, "test_accuracy": ' in said
            if found := re.findall(r"^run (\d+) on|started run (\d+)", said, re.MULTILINE):
                run_id = max(found[0])
    folder = server.path("/var/lib/fedmuon/trial")
    assert (folder / "metrics.jsonl").read_text().count("test_accuracy") == 4
    same_X_as_one_process(folder, WORDS)
    assert len(checkpoint.read(folder)[0].owners) == 3
    assert difference(folder, [four[name].path("/var/lib/fedmuon/states") for name in NAMES[1:]], 3) < 1e-6


def test_sites_with_pictures_of_their_own(four: dict[str, Machine]) -> None:
    """Section 5: site 1 lacks a class and has one of its own, site 2 has a broken picture until it mends it."""
    server, sites = four["server"], [four[name] for name in NAMES[1:]]
    pictures(server.path("/srv/pictures"), cat=6, dog=6)
    pictures(sites[0].path("/srv/pictures"), cat=9, dog=7)
    pictures(sites[1].path("/srv/pictures"), cat=8, horse=3)
    pictures(sites[2].path("/srv/pictures"), cat=5, dog=5)
    broken = sites[2].path("/srv/pictures") / "dog" / "mrs-miller.png"
    broken.write_text("half a picture")
    for site in sites:
        site.stop()
    said = ""
    for name, _, text in blocks("5"):
        if name != "server":
            four[name].start(text, "supernode.log")
        else:
            wait_for(lambda: online(server) == 3, 120)
            text = text.replace("rounds=3", "rounds=3 federation.connect_timeout=30")  # the broken one is waited for
            said = run(server, text)
            broken.unlink()
            said += run(server, text.replace("rounds=3", "rounds=5 resume=auto"))
    assert "1 of its class folders are not among dataset.classes" in said
    assert "cannot take part: its data or its machine does not fit the run: its own log says what" in said
    assert "horse" not in said
    assert "miller" not in said + (server.path("/var/lib/fedmuon/run") / "run.log").read_text()
    assert "mrs-miller.png" in (sites[2].folder / "supernode.log").read_text()
    assert "horse" in (sites[1].folder / "supernode.log").read_text()
    folder = server.path("/var/lib/fedmuon/run")
    judged = [json.loads(line)["clients"] for line in (folder / "clients.jsonl").read_text().splitlines()]
    assert [set(line) for line in judged] == [{"0", "1"}, {"0", "1", "2"}]
    assert judged[-1]["0"][2] == 3  # a fifth of 16
    standing, _ = checkpoint.read(folder)
    assert list(standing.clients) == [0, 1, 2]
    assert standing.counted[2].attempt == 2
    result = json.loads((folder / "result.json").read_text())
    assert (result["partition"], result["beta"], result["train_examples"]) == ("own", None, None)
    assert difference(folder, [site.path("/var/lib/fedmuon/states") for site in sites], 3) < 1e-6


WRONG = {  # what is done at site 0, and where the page's table has the words
    "an unregistered key": ("SuperNode", "Failed to activate SuperNode"),
    "the same key twice": ("SuperNode", "Failed to activate SuperNode"),
    "a wrong port": ("SuperNode", "Connection attempt failed, retrying in"),
    "another authority": ("SuperNode", "certificate verify failed"),
}


@pytest.mark.parametrize("what", WRONG)
def test_each_of_the_supernodes_words(what: str, four: dict[str, Machine]) -> None:
    where, words = WRONG[what]
    assert re.search(rf"\| {where} \| `{re.escape(words)}", PAGE.read_text())
    server, site = four["server"], four["site0"]
    command = next(text for name, _, text in blocks("4") if name == "site0")
    if what == "the same key twice" and not site.processes:
        site.start(command, "supernode.log")
        wait_for(lambda: online(server), 60)
    command = command.replace("--host 127.0.0.1", "--host 127.0.0.1 --port 9999")
    run(server, f"fedmuon-certs other --server server.example.org --nodes 1; cp other/* {site.folder}")
    if what == "an unregistered key":
        command = command.replace(f"{CERTS}/node-0", "node-0")
    elif what == "a wrong port":
        command = command.replace("org:8000", "org:8001")
    elif what == "another authority":
        command = command.replace(f"{CERTS}/ca.crt", "ca.crt")
    log = site.folder / f"{what}.log"
    process = site.start(command, log.name)
    try:
        wait_for(lambda: words in log.read_text(), 60)
        if "key" in what:
            assert process.wait(30) != 0
    finally:
        site.processes.remove(process)
        site.kill(process)
