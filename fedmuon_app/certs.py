"""The ``fedmuon-certs`` command: an authority, the SuperLink's certificate, and a key for each SuperNode."""

import argparse
import ipaddress
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_ssh_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedmuon_app.disk import write_whole
from fedmuon_app.errors import InputError
from fedmuon_app.terminal import tolerate

AUTHORITY_DAYS = 3650

Write = Callable[..., None]

OWN = ("localhost", "127.0.0.1", "::1")  # names of the machine itself


def main() -> None:
    """Make what is missing in DIR; what is there stays as it is (delete server.* to renew it)."""
    parser = argparse.ArgumentParser(prog="fedmuon-certs", description=main.__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR", help="where the files are, or go")
    parser.add_argument(
        "--server", nargs="+", default=[], metavar="NAME", help="names and IP addresses of the SuperLink"
    )
    parser.add_argument("--nodes", type=int, default=0, metavar="N", help="keys for SuperNodes 0 to N-1")
    parser.add_argument("--days", type=int, default=365, help="for which the SuperLink's certificate is good")
    tolerate()
    args = parser.parse_args()
    try:
        made = issue(args.folder, args.server, args.nodes, args.days)
    except InputError as error:
        print(f"fedmuon-certs: {error}", file=sys.stderr)
        sys.exit(2)
    print("\n".join(map(str, made)) or f"{args.folder} has all of that already")


def issue(folder: Path, server: Sequence[str], nodes: int, days: int = 365) -> list[Path]:
    """Write the files that are missing, private ones for their owner alone. What an interrupted call left is completed.

    Args:
        folder: gets ca.crt and ca.key (the authority: keep its key off the network), server.pem and server.key
            (for the SuperLink), node-I and node-I.pub (an OpenSSH key pair on P-384 for SuperNode I).
        server: host names and IP addresses under which SuperNodes and users reach the SuperLink; its own
            machine are always added, since its SuperExec reaches it there.
        nodes: number of SuperNodes.
        days: for which server.pem is good.

    Returns:
        The new files.

    Raises:
        InputError: a certificate is to be made and no name is given, or for no day, or without the authority's key; or
            a file is there that is none of these.
    """
    if days < 1:
        raise InputError(f"--days {days}: must be at least 1")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    made: list[Path] = []

    def write(name: str, content: bytes, mode: int = 0o644) -> None:
        write_whole(folder / name, content, mode)
        made.append(folder / name)

    # of each pair the private half is written first, so a pair that was interrupted lacks the other half
    if not (folder / "server.pem").exists() or not (folder / "server.key").exists():
        if not server:
            raise InputError("--server is missing: name the hosts or IP addresses under which the SuperLink is reached")
        ca, ca_key = _authority(folder, write)
        key = ec.generate_private_key(ec.SECP384R1())
        names = [*dict.fromkeys([*server, *OWN])]
        (folder / "server.pem").unlink(missing_ok=True)  # of another key
        write("server.key", _pem(key), 0o600)
        write("server.pem", _server_certificate(key, names, days, ca, ca_key).public_bytes(Encoding.PEM))
    for i in range(nodes):
        private, public = folder / f"node-{i}", folder / f"node-{i}.pub"
        if public.exists():
            continue  # its private half may be where it belongs: at its node
        if private.exists():
            key = _read(private, load_ssh_private_key)
        else:
            key = ec.generate_private_key(ec.SECP384R1())
            write(private.name, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()), 0o600)
        write(public.name, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n")
    return made


def _authority(folder: Path, write: Write) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """The authority in ``folder``; made, or its certificate made anew, where it lacks one.

    Raises:
        InputError: its key is elsewhere, or a file is none.
    """
    certificate, private = folder / "ca.crt", folder / "ca.key"
    if certificate.exists() and not private.exists():
        raise InputError(f"{private} is not there, and nothing can be signed without it: bring it back for this")
    if certificate.exists():
        key = _read(private, load_pem_private_key)
        try:
            return x509.load_pem_x509_certificate(certificate.read_bytes()), key
        except ValueError as error:
            raise InputError(f"{certificate} is no certificate: delete it, and it is made anew") from error
    if private.exists():
        key = _read(private, load_pem_private_key)
    else:
        key = ec.generate_private_key(ec.SECP384R1())
        write("ca.key", _pem(key), 0o600)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "FedMuon authority")])
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)  # signs certificates and lists
    signed = (
        _builder(name, name, key.public_key(), AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA384())
    )
    write("ca.crt", signed.public_bytes(Encoding.PEM))
    return signed, key


def _read(file: Path, load: Callable[..., object]) -> ec.EllipticCurvePrivateKey:
    """A private key.

    Raises:
        InputError: that is none.
    """
    try:
        key = load(file.read_bytes(), password=None)
    except (ValueError, TypeError) as error:
        raise InputError(f"{file} is no private key of ours: delete it, and it is made anew") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError(f"{file} is no private key of ours: delete it, and it is made anew")
    return key


def _server_certificate(
    key: ec.EllipticCurvePrivateKey,
    names: Sequence[str],
    days: int,
    ca: x509.Certificate,
    ca_key: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    return (
        _builder(subject, ca.subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_name(name) for name in names]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(identifier, critical=False)
        .sign(ca_key, hashes.SHA384())
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))  # clocks differ
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


if __name__ == "__main__":
    main()
