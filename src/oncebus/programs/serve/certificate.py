"""The self-signed certificate that a broker creates if it has to use TLS and was given no certificate.

The file `tls.pem` in the data folder holds, in this order,

    Oncebus: for localhost 127.0.0.1 ::1, until 1861280000      host names, and the end in seconds since 1970
    -----BEGIN CERTIFICATE----- …
    -----BEGIN PRIVATE KEY----- …

and only its owner may read it. `tls-certificate.pem` beside it holds only the certificate, for clients to trust. It is
not a certificate authority, so a client that trusts it trusts no other certificate.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import socket
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from oncebus.broker.clock import wall_time
from oncebus.protocols.listening import Tls
from oncebus.values import disk
from oncebus.values.durations import DAY, SECOND
from oncebus.values.errors import OncebusError
from oncebus.values.hosts import is_address
from oncebus.values.settings import Settings

FILE = "tls.pem"
CERTIFICATE = "tls-certificate.pem"
DAYS = 825
"""The longest validity that all clients accept: Apple's clients reject longer ones."""
RENEWED_BEFORE = 30 * DAY

_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_HEAD = re.compile(r"Oncebus: for (?P<hosts>.+), until (?P<end>[0-9]{1,12})")
_BEGIN = "-----BEGIN "
_ALWAYS = ("localhost", "127.0.0.1", "::1")
_EVERYWHERE = ("0.0.0.0", "::")
_USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


class CertificateError(OncebusError):
    """The certificate cannot be read or created. The text contains no part of a key."""


def with_certificate(settings: Settings) -> Settings:
    """Return the settings, completed with the broker's own certificate if they ask for TLS and name no certificate.

    In any case, the data folder then has the certificate, so that the commands trust it. Raises `CertificateError`.
    """
    if settings.tls_cert is not None:
        _show(settings.data, settings.tls_cert)
    if not settings.tls or settings.tls_cert is not None:
        return settings
    own = own_certificate(settings.data, settings.host, wall_time())
    return replace(settings, tls_cert=own.certificate, tls_key=own.key)


def _show(folder: Path, path: Path) -> None:
    """Copy the first certificate in a file to the data folder. A file that cannot be used is reported elsewhere."""
    with contextlib.suppress(OSError, ValueError):
        _, begin, rest = path.read_text(encoding="ascii").partition(f"{_BEGIN}CERTIFICATE-----")
        certificate, end, _ = rest.partition("-----END CERTIFICATE-----")
        if end:
            disk.publish(folder, CERTIFICATE, [f"{begin}{certificate}{end}\n".encode()])


def own_certificate(folder: Path, host: str, now: int) -> Tls:
    """Return the broker's own certificate, valid for `host` and for this machine's names.

    The first call creates it. Later calls replace it if it expires soon or lacks a host. Raises `CertificateError`.
    """
    hosts = hosts_of(host)
    path = folder / FILE
    try:
        content = _read(path)
        if content is None or not _is_good(content, hosts, now):
            disk.make_folder(folder, mode=0o700)
            content = _make(hosts, now)
            disk.publish(folder, FILE, [content.encode("ascii")], mode=disk.PRIVATE)
        _, certificate, _ = content.split(_BEGIN)
        disk.publish(folder, CERTIFICATE, [f"{_BEGIN}{certificate}".encode()])
    except OSError as error:
        raise CertificateError(f"Certificate '{path}' cannot be created: {error.strerror or error}.") from error
    return Tls(path, path)


def hosts_of(host: str) -> list[str]:
    """Return all names for which a certificate for `host` is valid."""
    given = host.strip("[]")
    names = [*_ALWAYS, socket.gethostname(), *([] if given in _EVERYWHERE else [given])]
    # The machine's name may contain characters that a certificate does not allow.
    return list(dict.fromkeys(name.lower() for name in names if is_address(name) or _HOST.fullmatch(name)))


def _read(path: Path) -> str | None:
    try:
        mode = path.stat().st_mode & 0o777
        content = path.read_text(encoding="ascii")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise _damage_error(path) from None
    if mode & 0o077:
        raise CertificateError(
            f"Certificate '{path}' is open to other users (mode {mode:04o}). Run: chmod 600 '{path}'"
        )
    if not _HEAD.match(content) or content.count(_BEGIN) != 2:
        raise _damage_error(path)
    return content


def _damage_error(path: Path) -> CertificateError:
    return CertificateError(f"Certificate '{path}' is damaged. Delete it: the next start creates a new one.")


def _is_good(content: str, hosts: Iterable[str], now: int) -> bool:
    head = _HEAD.match(content)
    return (
        head is not None
        and set(hosts) <= set(head["hosts"].split())
        and now < int(head["end"]) * SECOND - RENEWED_BEFORE
    )


def _make(hosts: list[str], now: int) -> str:
    # Imported late, because few brokers create a certificate and the library loads slowly.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    # The name is unique: a client that trusts several certificates of one name finds only the first.
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Oncebus {secrets.token_hex(8)}")])
    names: list[x509.GeneralName] = [
        x509.IPAddress(ip_address(host)) if is_address(host) else x509.DNSName(host) for host in hosts
    ]
    begin = datetime.fromtimestamp(now // SECOND, UTC)
    end = begin + timedelta(days=DAYS)
    usage = dict.fromkeys(_USAGES, False) | {"digital_signature": True}
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(**usage), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    pieces = (
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )
    head = f"Oncebus: for {' '.join(hosts)}, until {int(end.timestamp())}\n"
    return head + b"".join(pieces).decode("ascii")
