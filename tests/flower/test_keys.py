import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key

from fedmuon_app.certs import issue
from fedmuon_app.errors import InputError
from fedmuon_app.flower.keys import Owners, fingerprint, named_nodes
from tests.flower.test_strategy import config, grid_of, train

KEY = "SHA256:" + "a" * 43
OTHER = "SHA256:" + "b" * 43


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
def test_a_fingerprint_is_ssh_keygens(tmp_path: Path) -> None:
    issue(tmp_path, ["localhost"], 1)
    public = load_ssh_public_key((tmp_path / "node-0.pub").read_bytes())
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    said = subprocess.run(["ssh-keygen", "-lf", tmp_path / "node-0.pub"], capture_output=True, text=True, check=True)
    assert said.stdout.split()[1] == fingerprint(pem)


def test_who_comes_first_has_a_client_for_good() -> None:
    kept: dict[int, str] = {}
    owners = Owners(kept, None)
    assert owners.grant(0, KEY)
    assert owners.grant(0, KEY)
    assert not owners.grant(0, OTHER)
    assert owners.grant(1, OTHER)
    assert kept == {0: KEY, 1: OTHER}
    assert not Owners(kept, None).grant(1, KEY)
    assert not owners.stranger("SHA256:anybody")


def test_without_keys_nothing_is_bound() -> None:
    owners = Owners({}, None)
    assert owners.grant(0, "")
    assert owners.grant(0, "")


def test_who_is_named_beforehand_has_no_rival(tmp_path: Path) -> None:
    (tmp_path / "nodes.yaml").write_text(f"{KEY}: [0, 1]\n")
    owners = Owners({}, named_nodes(str(tmp_path / "nodes.yaml"), 3))
    assert owners.grant(0, KEY)
    assert not owners.grant(2, KEY)
    assert not owners.grant(0, OTHER)
    assert owners.stranger(OTHER)
    assert not owners.stranger(KEY)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "must hold lines like"),
        ("[1, 2]", "must hold lines like"),
        ("a: b: c", "it cannot be read"),
        ("SHA256:short: [0]", "is no fingerprint"),
        (f"{KEY}: 0", "must be a list of ids from 0 to 2"),
        (f"{KEY}: [3]", "must be a list of ids from 0 to 2"),
        (f"{KEY}: [true]", "must be a list of ids from 0 to 2"),
        (f"{KEY}: [0]\n{OTHER}: [0]", "client 0 has two keys"),
        (f"{KEY}: !!python/object/apply:os.system [ls]", "it cannot be read"),
    ],
)
def test_a_file_that_names_nobody_rightly_is_refused(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "nodes.yaml").write_text(text)
    with pytest.raises(InputError, match=rf"federation\.nodes = .*nodes\.yaml: .*{why}"):
        named_nodes(str(tmp_path / "nodes.yaml"), 3)


def test_where_there_are_no_keys_none_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "nodes.yaml").write_text(f"{KEY}: [0]\n")
    c = config(f"federation.nodes={tmp_path / 'nodes.yaml'}", "engine.insecure=true")
    with pytest.raises(InputError, match="SuperNodes have no registered keys here"):
        train(c, grid_of(c), tmp_path / "run")


def test_no_such_file() -> None:
    with pytest.raises(InputError, match=r"federation\.nodes = /no/such\.yaml: it cannot be read"):
        named_nodes("/no/such.yaml", 3)
    assert named_nodes(None, 3) is None
