"""Against real sockets on loopback: each way in which a SuperLink is not the one that is meant has its sentence."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fedmuon_app import certs
from fedmuon_app.certs import issue
from fedmuon_app.engines.handshake import check_superlink
from fedmuon_app.engines.superlink import free_port
from fedmuon_app.errors import InputError


@contextmanager
def server(folder: Path | None) -> Iterator[int]:
    """A server with the certificate in ``folder``, or one that speaks plain text; its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        context = None
        if folder is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(folder / "server.pem", folder / "server.key")

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with suppress(OSError), connection:
                        if context is None:
                            connection.recv(1)
                            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                        else:
                            context.wrap_socket(connection, server_side=True).close()

        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


class Clock(datetime):
    """Another time than now."""

    shift = timedelta()

    @classmethod
    def now(cls, tz: object = None) -> datetime:
        return datetime.now(UTC) + cls.shift


def issued(folder: Path, monkeypatch: pytest.MonkeyPatch, shift: timedelta) -> Path:
    with monkeypatch.context() as patch:
        patch.setattr(certs, "datetime", Clock)
        patch.setattr(Clock, "shift", shift)
        issue(folder, ["127.0.0.1"], 0, days=3)
    return folder


def test_the_right_one_passes(tmp_path: Path) -> None:
    issue(tmp_path, ["server.example.org"], 0)
    with server(tmp_path) as port:
        check_superlink(f"localhost:{port}", tmp_path / "ca.crt")
    with server(None) as port:
        check_superlink(f"127.0.0.1:{port}", None)


def test_another_authority(tmp_path: Path) -> None:
    issue(tmp_path / "ours", ["127.0.0.1"], 0)
    issue(tmp_path / "theirs", ["127.0.0.1"], 0)
    with (
        server(tmp_path / "theirs") as port,
        pytest.raises(InputError, match=r"not signed by the authority of .*ca\.crt"),
    ):
        check_superlink(f"127.0.0.1:{port}", tmp_path / "ours" / "ca.crt")


@pytest.mark.parametrize(
    ("days", "said"), [(-30, "has expired"), (30, "is not valid yet: compare the two machines' clocks")]
)
def test_a_certificate_of_another_time(days: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    issue(tmp_path, ["127.0.0.1"], 0)
    for name in ("server.pem", "server.key"):
        (tmp_path / name).unlink()
    issued(tmp_path, monkeypatch, timedelta(days=days))  # signed by today's authority
    with server(tmp_path) as port, pytest.raises(InputError, match=said):
        check_superlink(f"127.0.0.1:{port}", tmp_path / "ca.crt")


def test_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certs, "OWN", ())
    issue(tmp_path, ["server.example.org"], 0)
    with server(tmp_path) as port:
        for name in ("localhost", "127.0.0.1"):
            with pytest.raises(InputError, match=f"its certificate does not name {name}"):
                check_superlink(f"{name}:{port}", tmp_path / "ca.crt")


def test_nobody_there_or_something_else(tmp_path: Path) -> None:
    issue(tmp_path, ["127.0.0.1"], 0)
    authority = tmp_path / "ca.crt"
    with pytest.raises(InputError, match=r"nothing listens on that port of 127\.0\.0\.1"):
        check_superlink(f"127.0.0.1:{free_port()}", authority)
    with pytest.raises(InputError, match=r"the name no\.such\.host\.invalid is not known here"):
        check_superlink("no.such.host.invalid:8000", authority)
    with (
        server(None) as port,
        pytest.raises(InputError, match=r"does not speak TLS .*: was it started with --insecure"),
    ):
        check_superlink(f"127.0.0.1:{port}", authority)
    with server(tmp_path) as port, pytest.raises(InputError, match="it speaks TLS: name its authority's certificate"):
        check_superlink(f"127.0.0.1:{port}", None)
    (tmp_path / "ca.crt").write_text("nothing")
    with server(tmp_path) as port, pytest.raises(InputError, match=r"ca\.crt: that is no certificate"):
        check_superlink(f"127.0.0.1:{port}", authority)


def test_somebody_who_never_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    issue(tmp_path, ["127.0.0.1"], 0)
    monkeypatch.setattr("fedmuon_app.engines.handshake.PATIENCE", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(InputError, match=r"no answer in 0\.3 s"):
        check_superlink(f"127.0.0.1:{silent.getsockname()[1]}", tmp_path / "ca.crt")
