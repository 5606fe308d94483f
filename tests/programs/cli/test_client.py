"""Tests the commands' HTTP client against a server that answers as each test says, without a broker."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from oncebus.broker.clock import wall_time
from oncebus.programs.cli.client import Client, NotAnswered
from oncebus.programs.serve.certificate import CERTIFICATE, FILE, own_certificate, with_certificate
from oncebus.values.settings import Settings

from .own_authority import Authority

HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Count: 7\r\n\r\nhello"
_DETAIL = b"<Error><Detail>No  room &amp; no hope</Detail></Error>"
FULL = b"HTTP/1.1 507 Full\r\nContent-Length: %d\r\n\r\n%s" % (len(_DETAIL), _DETAIL)
MOVED = b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere.invalid/\r\nContent-Length: 0\r\n\r\n"


class Server:
    """Accepts one connection after the other. Each list in `answers` is one connection: the answers to its requests."""

    def __init__(self, answers: list[list[bytes]], folder: Path | None = None) -> None:
        self.seen: list[bytes] = []
        self._answers = answers
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._tls = None
        if folder is not None:
            self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self._tls.load_cert_chain(folder / FILE)
        scheme = "http" if folder is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()

    def _run(self) -> None:
        try:
            for answers in self._answers:
                connection, _ = self._listening.accept()
                with self._tls.wrap_socket(connection, server_side=True) if self._tls else connection as reached:
                    for answer in answers:
                        self.seen.append(reached.recv(65536))
                        reached.sendall(answer)
                    # Read the request after the last answer, but never answer it.
                    self.seen.append(reached.recv(65536))
        except (OSError, ssl.SSLError):
            # The test closed the listening socket, or the client refused the certificate.
            pass


@contextmanager
def serving(*answers: list[bytes], folder: Path | None = None) -> Iterator[Server]:
    server = Server(list(answers), folder)
    try:
        yield server
    finally:
        server.close()


def test_requests_share_a_connection_and_carry_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with serving([HELLO, HELLO]) as server, Client(f"{server.url}/", "my token") as client:
        assert client.ask("GET", "/orders/$duplicates?limit=5&message-id=a%2Fb").body == b"hello"
        answer = client.ask("POST", "/orders/messages", b"x", {"Content-Type": "text/plain"})
        assert (answer.status, answer.headers["x-count"]) == (200, "7")
    assert server.seen[0].startswith(b"GET /orders/$duplicates?limit=5&message-id=a%2Fb HTTP/1.1\r\n")
    assert server.seen[1].startswith(b"POST /orders/messages HTTP/1.1\r\n")
    assert all(b"\r\nauthorization: my token\r\n" in seen.lower() for seen in server.seen[:2])


def test_a_get_is_repeated_if_the_kept_connection_was_closed() -> None:
    with serving([HELLO], [HELLO]) as server, Client(server.url, "") as client:
        assert client.ask("GET", "/").body == client.ask("GET", "/").body == b"hello"
    assert len([seen for seen in server.seen if seen]) == 3


def test_a_request_that_may_have_been_executed_is_not_repeated() -> None:
    with serving([HELLO], [HELLO]) as server, Client(server.url, "") as client:
        client.ask("GET", "/")
        with pytest.raises(NotAnswered, match=f"The broker at {server.url} cannot be reached: [A-Z][^.]+\\.$"):
            client.ask("POST", "/orders/messages", b"x")
    assert len([seen for seen in server.seen if seen]) == 2


def test_a_refusal_has_the_status_and_the_detail_in_one_line() -> None:
    with serving([FULL]) as server, Client(server.url, "") as client, pytest.raises(NotAnswered) as caught:
        client.ask("GET", "/")
    assert str(caught.value) == f"The broker at {server.url} answers 507: No room & no hope"
    assert (caught.value.status, caught.value.content) == (507, FULL.partition(b"\r\n\r\n")[2])


def test_redirects_are_not_followed() -> None:
    with serving([MOVED]) as server, Client(server.url, "") as client, pytest.raises(NotAnswered) as caught:
        client.ask("GET", "/")
    assert str(caught.value) == f"The broker at {server.url} answers 302: Found"


def test_a_broker_that_does_not_answer_in_time_is_named() -> None:
    with serving([b""]) as server, Client(server.url, "") as client, pytest.raises(NotAnswered) as caught:
        client.ask("GET", "/", timeout=0.2)
    assert str(caught.value) == f"The broker at {server.url} cannot be reached: it does not answer in time."


def test_with_tls_only_the_known_certificate_is_trusted(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    for folder in (own, other):
        own_certificate(folder, "127.0.0.1", wall_time())
    with serving([HELLO], folder=own) as server, Client(server.url, "", own / CERTIFICATE) as client:
        assert client.ask("GET", "/").body == b"hello"
    with (
        serving([HELLO], folder=own) as server,
        Client(server.url, "", other / CERTIFICATE) as client,
        pytest.raises(NotAnswered, match=r"cannot be reached: its certificate is not trusted: .*self.signed"),
    ):
        client.ask("GET", "/")


def test_a_certificate_of_an_authority_of_ones_own_is_trusted(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    ours, other, local = tmp_path / "ours", tmp_path / "other", tmp_path / "local"
    authority.certify(ours / FILE, "bus.example.org")
    authority.certify(other / FILE, "bus.example.org")
    authority.certify(local / FILE, "127.0.0.1")
    # The broker shows its certificate to the commands, which may reach it under another name.
    with_certificate(Settings(data=ours, tls_cert=ours / FILE, tls_key=ours / FILE))
    assert "PRIVATE" not in (ours / CERTIFICATE).read_text()
    for trusted in (ours / CERTIFICATE, ours / FILE):
        with serving([HELLO], folder=ours) as server, Client(server.url, "", trusted) as client:
            assert client.ask("GET", "/").body == b"hello"
        with (
            serving([HELLO], folder=other) as server,
            Client(server.url, "", trusted) as client,
            pytest.raises(NotAnswered, match="its certificate is not trusted"),
        ):
            client.ask("GET", "/")
    # Who trusts the authority trusts each of its certificates, for its host only.
    with serving([HELLO], folder=local) as server, Client(server.url, "", authority=authority.file) as client:
        assert client.ask("GET", "/").body == b"hello"
    with (
        serving([HELLO], folder=ours) as server,
        Client(server.url, "", authority=authority.file) as client,
        pytest.raises(NotAnswered, match=r"its certificate is not trusted: .*127"),
    ):
        client.ask("GET", "/")


def test_a_trusted_certificate_may_leave_out_who_signed_it(tmp_path: Path) -> None:
    Authority(tmp_path).certify(tmp_path / "ours" / FILE, "bus.example.org", is_plain=True)
    with (
        serving([HELLO], folder=tmp_path / "ours") as server,
        Client(server.url, "", tmp_path / "ours" / FILE) as client,
    ):
        assert client.ask("GET", "/").body == b"hello"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("127.0.0.1:5300", "unknown url type. Write http://host:port"),
        ("ftp://host", "unknown url type. Write http://host:port"),
        ("http://host:none", "Port could not be cast to integer value as 'none'"),
    ],
)
def test_a_bad_url_is_named(url: str, why: str) -> None:
    with pytest.raises(NotAnswered) as caught:
        Client(url, "")
    assert str(caught.value) == f"The broker at {url} cannot be reached: {why}."


def test_a_missing_certificate_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotAnswered, match=r"Certificate '.*/none\.pem' cannot be read: No such file or directory\."):
        Client("https://localhost:1", "", tmp_path / "none.pem")
