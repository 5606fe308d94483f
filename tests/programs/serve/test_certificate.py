"""Tests the broker's self-signed certificate."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path

import pytest
from cryptography.x509 import load_pem_x509_certificate

from oncebus.broker.clock import wall_time
from oncebus.programs.serve.certificate import CERTIFICATE, DAYS, FILE, CertificateError, hosts_of, own_certificate
from oncebus.values.durations import DAY, SECOND


def shake_hands(folder: Path, host: str, trusted: Path | None = None) -> None:
    """Connect a client that trusts the certificate to a server that has it, under a host name."""
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(folder / FILE)
    client = ssl.create_default_context(cafile=str(trusted or folder / CERTIFICATE))
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    near, far = socket.socketpair()

    def serve() -> None:
        try:
            server.wrap_socket(far, server_side=True).unwrap().close()
        except (ssl.SSLError, OSError):
            # The client raises the error that the test checks.
            far.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(near, server_hostname=host) as connected:
            connected.unwrap()
    finally:
        near.close()
        thread.join()


def test_clients_that_trust_it_connect_by_any_of_its_names_and_by_no_other(tmp_path: Path) -> None:
    own_certificate(tmp_path, "bus.example.org", wall_time())
    for host in ("localhost", "127.0.0.1", "::1", "bus.example.org", "BUS.example.org"):
        shake_hands(tmp_path, host)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(tmp_path, "other.example.org")


def test_a_client_can_trust_several_brokers_at_once(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two", "three")]
    for folder in folders:
        own_certificate(folder, "localhost", wall_time())
    (tmp_path / "trusted").write_text("".join((folder / CERTIFICATE).read_text() for folder in folders))
    for folder in folders:
        shake_hands(folder, "localhost", tmp_path / "trusted")


def test_it_is_created_once_and_only_its_owner_can_read_the_key(tmp_path: Path) -> None:
    now = wall_time()
    tls = own_certificate(tmp_path / "new", "localhost", now)
    assert tls.certificate == tls.key == tmp_path / "new" / FILE
    assert tls.key.stat().st_mode & 0o777 == 0o600
    content = tls.key.read_text()
    assert "PRIVATE KEY" in content
    alone = (tmp_path / "new" / CERTIFICATE).read_text()
    assert alone.startswith("-----BEGIN CERTIFICATE-----\n")
    assert "PRIVATE" not in alone
    assert alone in content
    (tmp_path / "new" / CERTIFICATE).unlink()
    own_certificate(tmp_path / "new", "0.0.0.0", now + DAY)
    assert tls.key.read_text() == content
    assert (tmp_path / "new" / CERTIFICATE).read_text() == alone
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted([FILE, CERTIFICATE])


@pytest.mark.parametrize(
    ("host", "days", "is_new"),
    [
        ("localhost", DAYS - 31, False),
        ("localhost", DAYS - 29, True),
        ("new.example.org", 0, True),
        ("192.0.2.7", 0, True),
    ],
)
def test_it_is_replaced_when_it_expires_soon_or_lacks_the_host(
    tmp_path: Path, host: str, days: int, is_new: bool
) -> None:
    now = wall_time()
    content = own_certificate(tmp_path, "localhost", now).key.read_text()
    own_certificate(tmp_path, host, now + days * DAY)
    assert ((tmp_path / FILE).read_text() != content) == is_new
    if days == 0:
        shake_hands(tmp_path, host)


def test_names_that_a_certificate_does_not_allow_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "my machine,IP:0.0.0.0")
    assert hosts_of("[fe80::1]") == ["localhost", "127.0.0.1", "::1", "fe80::1"]
    assert hosts_of("0.0.0.0") == hosts_of("::") == ["localhost", "127.0.0.1", "::1"]
    assert hosts_of("Bus.Example.org")[-1] == "bus.example.org"


def test_a_file_that_others_can_read_or_that_is_damaged_is_refused(tmp_path: Path) -> None:
    path = own_certificate(tmp_path, "localhost", wall_time()).key
    path.chmod(0o640)
    with pytest.raises(CertificateError, match=r"is open to other users \(mode 0640\). Run: chmod 600 '"):
        own_certificate(tmp_path, "localhost", wall_time())
    path.chmod(0o600)
    for content in (b"", b"nonsense", b"\xff", path.read_bytes()[:500]):
        path.write_bytes(content)
        with pytest.raises(CertificateError, match=r"is damaged\. Delete it: the next start creates a new one\."):
            own_certificate(tmp_path, "localhost", wall_time())


def test_it_begins_now_and_ends_when_its_head_says(tmp_path: Path) -> None:
    now = wall_time()
    own_certificate(tmp_path, "localhost", now)
    certificate = load_pem_x509_certificate((tmp_path / CERTIFICATE).read_bytes())
    assert certificate.not_valid_before_utc.timestamp() == now // SECOND
    end = int(certificate.not_valid_after_utc.timestamp())
    assert end == (now + DAYS * DAY) // SECOND
    assert (tmp_path / FILE).read_text().splitlines()[0].endswith(f", until {end}")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CertificateError, match=r"cannot be created: Not a directory\."):
        own_certificate(tmp_path / "file", "localhost", wall_time())
