import ssl
import stat
import subprocess
import sys
from pathlib import Path

import pytest

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
        "ca.crt", "ca.key", "server.pem", "server.key", "node-0", "node-0.pub",
    ]  # fmt: skip
    assert "has all of that already" in second


@pytest.mark.parametrize("days", [0, -3])
def test_a_certificate_for_no_day_is_refused(days: int, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"--days {days}: must be at least 1"):
        issue(tmp_path / "certs", ["a.example.org"], 1, days)
    assert not (tmp_path / "certs").exists()
