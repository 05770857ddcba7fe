"""Whether a SuperLink is there and is whom its certificate names: tried before Flower, which says one word for all."""

import socket
import ssl
from pathlib import Path

from fedmuon_app.errors import InputError

PATIENCE = 10.0  # seconds
# of OpenSSL's verification (X509_V_ERR_…)
NOT_YET, EXPIRED, NAME, ADDRESS = 9, 10, 62, 64
UNKNOWN_AUTHORITY = (2, 18, 19, 20, 21)


def check_superlink(address: str, authority: Path | None) -> None:
    """Connect once, as ``flwr`` and a SuperNode do.

    Args:
        address: HOST:PORT.
        authority: file of its certificate; None: no TLS.

    Raises:
        InputError: nobody answers there, or it is not the SuperLink that is meant; the message says which and why.
    """
    host, _, port = address.rpartition(":")
    host, what = host.strip("[]"), f"engine.superlink = {address}"
    try:
        with socket.create_connection((host, int(port)), PATIENCE) as plain:
            if authority is None:
                refuse_tls(plain, what)
                return
            with _context(authority).wrap_socket(plain, server_hostname=host):
                pass
    except socket.gaierror as error:
        raise InputError(f"{what}: the name {host} is not known here ({error.strerror})") from error
    except ConnectionRefusedError as error:
        raise InputError(f"{what}: nothing listens on that port of {host}: is the SuperLink up?") from error
    except TimeoutError as error:
        raise InputError(f"{what}: no answer in {PATIENCE:g} s: is the port open in the server's firewall?") from error
    except ssl.SSLCertVerificationError as error:
        raise InputError(f"{what}: {_verification(error, host, authority)}") from error
    except ssl.SSLError as error:
        raise InputError(f"{what}: it does not speak TLS ({error.reason}): was it started with --insecure?") from error
    except OSError as error:
        raise InputError(f"{what}: it cannot be reached ({error.strerror or error})") from error


def refuse_tls(plain: socket.socket, what: str) -> None:
    """Where no TLS is wanted there must be none.

    Raises:
        InputError: there is.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with context.wrap_socket(plain):
            pass
    except (ssl.SSLError, OSError):
        return
    raise InputError(f"{what}: it speaks TLS: name its authority's certificate (engine.root_certificates=…/ca.crt)")


def _context(authority: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(authority))
    except ssl.SSLError as error:
        raise InputError(f"engine.root_certificates = {authority}: that is no certificate") from error


def _verification(error: ssl.SSLCertVerificationError, host: str, authority: Path | None) -> str:
    code = error.verify_code
    if code == EXPIRED:
        return (
            "its certificate has expired, or its authority's: fedmuon-certs renews it (rm certs/server.*, --server …)"
        )
    if code == NOT_YET:
        return "its certificate is not valid yet: compare the two machines' clocks"
    if code in UNKNOWN_AUTHORITY:
        return f"its certificate is not signed by the authority of {authority}: take ca.crt from the server's certs"
    if code in (NAME, ADDRESS):
        return f"its certificate does not name {host}: use a name that it has, or fedmuon-certs … --server {host}"
    return f"its certificate is refused ({error.verify_message})"
