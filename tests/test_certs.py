import ssl
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_private_key

from fedmuon_app.certs import issue
from fedmuon_app.errors import InputError


def handshake(certs: Path, ca: Path, name: str) -> None:
    """TLS between a server with the certificate and a client that trusts ``ca`` and asks for ``name``."""
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=str(ca))
    server.load_cert_chain(certs / "server.pem", certs / "server.key")
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(back, there, server_hostname=name), server.wrap_bio(there, back, server_side=True)]
    while ends:
        for end in list(ends):
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                continue


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certs") / "certs"
    issue(folder, ["superlink.example.org", "10.0.0.7"], 2)
    return folder


@pytest.mark.parametrize("name", ["superlink.example.org", "10.0.0.7", "localhost", "127.0.0.1", "::1"])
def test_tls_is_had_under_each_name(certs: Path, name: str) -> None:
    handshake(certs, certs / "ca.crt", name)


def test_not_under_another_name_nor_with_another_authority(certs: Path, tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        handshake(certs, certs / "ca.crt", "example.org")
    issue(tmp_path, ["superlink.example.org"], 0)
    with pytest.raises(ssl.SSLCertVerificationError, match="verify failed"):
        handshake(certs, tmp_path / "ca.crt", "superlink.example.org")


def test_private_files_are_the_owners_and_openssh_reads_the_keys(certs: Path) -> None:
    for name in ("ca.key", "server.key", "node-0", "node-1"):
        assert stat.S_IMODE((certs / name).stat().st_mode) == 0o600
    assert (certs / "node-0.pub").read_text().startswith("ecdsa-sha2-nistp384 ")
    assert (certs / "node-0").read_text().startswith("-----BEGIN OPENSSH PRIVATE KEY-----")


def test_what_is_there_stays_and_what_is_missing_is_made(certs: Path, tmp_path: Path) -> None:
    before = {file.name: file.read_bytes() for file in certs.iterdir()}
    assert issue(certs, [], 2) == []
    assert [file.name for file in issue(certs, [], 3)] == ["node-2", "node-2.pub"]
    assert {file.name: file.read_bytes() for file in certs.iterdir() if file.name in before} == before
    (certs / "server.pem").unlink()
    (certs / "server.key").unlink()
    issue(certs, ["renewed"], 0)
    handshake(certs, certs / "ca.crt", "renewed")
    with pytest.raises(InputError, match="--server is missing"):
        issue(tmp_path / "new", [], 2)


def test_the_command(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "fedmuon_app.certs",
        str(tmp_path / "certs"),
        "--server",
        "localhost",
        "--nodes",
        "1",
    ]
    first, second = (subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2))
    assert [Path(line).name for line in first.split()] == [
        "ca.key", "ca.crt", "server.key", "server.pem", "node-0", "node-0.pub",
    ]  # fmt: skip
    assert "has all of that already" in second


@pytest.mark.parametrize("days", [0, -3])
def test_a_certificate_for_no_day_is_refused(days: int, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"--days {days}: must be at least 1"):
        issue(tmp_path / "certs", ["a.example.org"], 1, days)
    assert not (tmp_path / "certs").exists()


@pytest.mark.parametrize(
    ("lost", "anew"),
    [
        (["ca.crt", "server.key", "server.pem", "node-0", "node-0.pub"], None),
        (["server.pem", "node-0", "node-0.pub"], None),
        (["node-0.pub"], ["node-0.pub"]),
        (["server.key"], ["server.key", "server.pem"]),
        (["node-0"], []),  # it is where it belongs
    ],
)
def test_what_an_interrupted_call_has_left_is_completed(
    lost: list[str], anew: list[str] | None, tmp_path: Path
) -> None:
    issue(tmp_path, ["a.example.org"], 1)
    kept = {name: (tmp_path / name).read_bytes() for name in ("ca.key", "node-0")}
    for name in lost:
        (tmp_path / name).unlink()
    made = [file.name for file in issue(tmp_path, ["a.example.org"], 1)]
    assert set(made) == set(lost if anew is None else anew) | ({"server.key"} & set(made))
    handshake(tmp_path, tmp_path / "ca.crt", "a.example.org")
    assert (tmp_path / "ca.key").read_bytes() == kept["ca.key"]
    if "node-0" not in lost:
        derived = load_ssh_private_key(kept["node-0"], None).public_key()
        assert (tmp_path / "node-0.pub").read_bytes() == derived.public_bytes(
            Encoding.OpenSSH, PublicFormat.OpenSSH
        ) + b"\n"
    assert not list(tmp_path.glob("*.new"))


def test_without_the_authoritys_key_nothing_is_signed_but_keys_are_made(tmp_path: Path) -> None:
    issue(tmp_path, ["a.example.org"], 0)
    (tmp_path / "ca.key").unlink()  # it was taken off the network
    assert [file.name for file in issue(tmp_path, [], 1)] == ["node-0", "node-0.pub"]
    (tmp_path / "server.pem").unlink()
    with pytest.raises(InputError, match=r"ca\.key is not there, and nothing can be signed without it"):
        issue(tmp_path, ["a.example.org"], 0)


@pytest.mark.parametrize("name", ["ca.key", "ca.crt", "node-0"])
def test_a_file_that_is_something_else_is_named(name: str, tmp_path: Path) -> None:
    issue(tmp_path, ["a.example.org"], 1)
    (tmp_path / name).write_text("half a")
    for gone in ("server.pem", "node-0.pub"):
        (tmp_path / gone).unlink()
    with pytest.raises(InputError, match=f"{name} is no .*: delete it, and it is made anew"):
        issue(tmp_path, ["a.example.org"], 1)
