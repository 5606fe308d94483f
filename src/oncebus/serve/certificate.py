"""The certificate that a broker makes for itself, where it is asked to speak TLS and was given none.

The file `tls.pem` in the data folder holds, in this order,

    Oncebus: for localhost 127.0.0.1 ::1, until 1861280000      its names, and its end in seconds since 1970
    -----BEGIN CERTIFICATE----- …
    -----BEGIN PRIVATE KEY----- …

and only its owner may read it. `tls-certificate.pem` beside it is the certificate alone, for clients to trust: it signs
nothing but itself, so that who trusts it trusts no other.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from oncebus.broker.clock import wall_time
from oncebus.durations import DAY, SECOND
from oncebus.errors import OncebusError
from oncebus.files import publish, sync_folder
from oncebus.hosts import is_address
from oncebus.http.server import Tls
from oncebus.settings import Settings

FILE = "tls.pem"
CERTIFICATE = "tls-certificate.pem"
DAYS = 825
"""Some clients trust none that lasts longer."""
RENEWED_BEFORE = 30 * DAY

_PRIVATE = 0o600
_SECONDS = 60
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_HEAD = re.compile(r"Oncebus: for (?P<hosts>.+), until (?P<end>[0-9]{1,12})")
_BEGIN = "-----BEGIN "
_ALWAYS = ("localhost", "127.0.0.1", "::1")
_EVERYWHERE = ("0.0.0.0", "::")


class CertificateError(OncebusError):
    """No certificate can be had. The text holds no part of a key."""


def with_certificate(settings: Settings) -> Settings:
    """The settings, with the broker's own certificate if they ask for TLS and name none. Raises `CertificateError`."""
    if not settings.tls or settings.tls_cert is not None:
        return settings
    own = own_certificate(settings.data, settings.host, wall_time())
    return replace(settings, tls_cert=own.certificate, tls_key=own.key)


def own_certificate(folder: Path, host: str, now: int) -> Tls:
    """The broker's own certificate, for the host that it listens at and for this machine's names.

    It is made at the first call, and anew when it is about to end or lacks the host. Raises `CertificateError`.
    """
    hosts = hosts_of(host)
    path = folder / FILE
    try:
        content = _read(path)
        if content is None or not _is_good(content, hosts, now):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            content = _made(folder, hosts, now)
            _write(folder, content)
        _, certificate, _ = content.split(_BEGIN)
        publish(os.fspath(folder), CERTIFICATE, [f"{_BEGIN}{certificate}".encode()])
    except OSError as error:
        raise CertificateError(f"Certificate '{path}' cannot be made: {error.strerror or error}.") from error
    return Tls(path, path)


def hosts_of(host: str) -> list[str]:
    """All names that a certificate for a host is made for."""
    given = host.strip("[]")
    names = [*_ALWAYS, socket.gethostname(), *([] if given in _EVERYWHERE else [given])]
    # A machine may have a name that no certificate can hold.
    return list(dict.fromkeys(name.lower() for name in names if is_address(name) or _HOST.fullmatch(name)))


def _read(path: Path) -> str | None:
    try:
        mode = path.stat().st_mode & 0o777
        content = path.read_text(encoding="ascii")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise _damaged(path) from None
    if mode & 0o077:
        raise CertificateError(
            f"Certificate '{path}' is open to other users (mode {mode:04o}). Run: chmod 600 '{path}'"
        )
    if not _HEAD.match(content) or content.count(_BEGIN) != 2:
        raise _damaged(path)
    return content


def _damaged(path: Path) -> CertificateError:
    return CertificateError(f"Certificate '{path}' is damaged. Remove it: the next start makes a new one.")


def _is_good(content: str, hosts: Iterable[str], now: int) -> bool:
    head = _HEAD.match(content)
    return (
        head is not None
        and set(hosts) <= set(head["hosts"].split())
        and now < int(head["end"]) * SECOND - RENEWED_BEFORE
    )


def _made(folder: Path, hosts: list[str], now: int) -> str:
    names = ",".join(f"IP:{host}" if is_address(host) else f"DNS:{host}" for host in hosts)
    with tempfile.TemporaryDirectory(prefix=".tls-", dir=folder) as name:
        place = Path(name)
        (place / "request").write_text(
            "[req]\nprompt = no\ndistinguished_name = name\nx509_extensions = extensions\n"
            # Of several that bear one name, who is told to trust them all trusts only the first.
            f"[name]\nCN = Oncebus {secrets.token_hex(8)}\n"
            f"[extensions]\nsubjectAltName = {names}\n"
            "basicConstraints = critical,CA:FALSE\nkeyUsage = critical,digitalSignature\n"
            "extendedKeyUsage = serverAuth\nsubjectKeyIdentifier = hash\n",
            encoding="ascii",
        )
        _openssl(place)
        certificate = (place / "certificate").read_text(encoding="ascii")
        key = (place / "key").read_text(encoding="ascii")
    end = now // SECOND + DAYS * (DAY // SECOND)
    return f"Oncebus: for {' '.join(hosts)}, until {end}\n{certificate}{key}"


def _openssl(place: Path) -> None:
    """Python's own ssl can use certificates, but make none."""
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-sha256", "-days", str(DAYS), "-config", "request", "-keyout", "key", "-out", "certificate"]
    try:
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except FileNotFoundError:
        raise CertificateError(
            "No certificate can be made: the program 'openssl' was not found. Install it, or give --tls-cert and"
            " --tls-key."
        ) from None
    except subprocess.TimeoutExpired:
        raise CertificateError(
            f"No certificate can be made: 'openssl' did not end within {_SECONDS} seconds."
        ) from None
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["it gave no reason"])[-1]
        raise CertificateError(f"No certificate can be made: 'openssl' failed: {reason}")


def _write(folder: Path, content: str) -> None:
    """Like `publish`, but never readable to others."""
    temporary = folder / f".{FILE}.{os.getpid()}"
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _PRIVATE)
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    os.replace(temporary, folder / FILE)
    sync_folder(os.fspath(folder))
