"""Asks a running broker over HTTP, for the commands that show what it knows and tell it what to do."""

from __future__ import annotations

import html
import json
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import httpx

from oncebus.errors import OncebusError

TIMEOUT_SECONDS = 30.0
PAGE = 1000


class NotAnswered(OncebusError):
    """The broker cannot be reached, or refuses. `status` is its answer's, and `content` what that holds, if it came."""

    def __init__(self, text: str, status: int | None = None, content: bytes = b"") -> None:
        super().__init__(text)
        self.status = status
        self.content = content


class Answer(NamedTuple):
    """What the broker said. The names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Client:
    """Speaks to the broker at an address, on one connection that is kept. Closed by `close`, or as a context.

    With `certificate` that one is trusted, and no other.
    """

    def __init__(self, url: str, token: str, certificate: Path | None = None) -> None:
        self.url = url.rstrip("/")
        self._http = _http(self.url, token, certificate)
        self._is_kept = False

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._http.close()

    def ask(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        timeout: float = TIMEOUT_SECONDS,
    ) -> Answer:
        """The answer to a request. Raises `NotAnswered` for one that is refused.

        A broker is asked directly: a token is not to be shown to a proxy. Only a look is tried again, where the
        connection that was kept has gone meanwhile: whatever else may have been done already.
        """
        try:
            response = self._response(method, path, body, headers, timeout)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise NotAnswered(f"The broker at {self.url} cannot be reached: {_words(error)}.") from None
        said = Answer(response.status_code, response.headers, response.content)
        if said.status >= 300:
            text = _detail(response.text) or response.reason_phrase
            raise NotAnswered(f"The broker at {self.url} answers {said.status}: {text}", said.status, said.body)
        return said

    def ask_json(self, method: str, path: str, content: object = None, **options: Any) -> dict[str, Any]:
        """The JSON object that answers a request; `content` is sent as JSON. Empty where the answer is."""
        body = b"" if content is None else json.dumps(content).encode()
        headers = {} if content is None else {"Content-Type": "application/json"}
        answer = self.ask(method, path, body, headers, **options)
        if not answer.body:
            return {}
        try:
            found = json.loads(answer.body)
        except ValueError as error:
            raise NotAnswered(f"What answers at {self.url} is no broker: {error}.") from None
        if not isinstance(found, dict):
            raise NotAnswered(f"What answers at {self.url} is no broker.")
        return found

    def _response(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str] | None, timeout: float
    ) -> httpx.Response:
        is_kept, self._is_kept = self._is_kept, True
        request = self._http.build_request(method, self.url + path, content=body, headers=headers, timeout=timeout)
        try:
            return self._http.send(request)
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
            if not is_kept or method != "GET":
                raise
        return self._http.send(request)


def duplicates(
    url: str,
    token: str,
    entity: str,
    *,
    message_id: str | None = None,
    since: str | None = None,
    page: int = PAGE,
    certificate: Path | None = None,
) -> Iterator[dict[str, Any]]:
    """The record of dropped duplicates of an entity, oldest first, page by page."""
    query = {"message-id": message_id, "since": since, "limit": str(page)}
    after = 0
    with Client(url, token, certificate) as client:
        while True:
            given = {name: value for name, value in query.items() if value is not None} | {"after": str(after)}
            answer = client.ask_json("GET", f"/{quote(entity, safe='/')}/$duplicates?{urlencode(given)}")
            if not {"duplicates", "next"} <= answer.keys():
                raise NotAnswered(f"What answers at {client.url} is no broker.")
            yield from answer["duplicates"]
            if answer["next"] is None:
                return
            after = answer["next"]


def _http(url: str, token: str, certificate: Path | None) -> httpx.Client:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise NotAnswered(f"The broker at {url} cannot be reached: {error}.") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise NotAnswered(f"The broker at {url} cannot be reached: unknown url type. Write http://host:port.")
    trusted: ssl.SSLContext | bool = False
    if parts.scheme == "https":
        try:
            trusted = ssl.create_default_context(cafile=certificate)
        except OSError as error:
            raise NotAnswered(f"Certificate '{certificate}' cannot be read: {_words(error)}.") from None
    # Without the environment: it may name a proxy, which is not to see the token.
    return httpx.Client(headers={"Authorization": token}, verify=trusted, trust_env=False)


def _words(error: BaseException) -> str:
    """What went wrong below the library's own error, if that is known."""
    if isinstance(error, httpx.TimeoutException):
        return "it does not answer in time"
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted: {cause.verify_message}"
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return str(error).rstrip(".") or type(error).__name__


def _detail(said: str) -> str:
    """What an error's body says, in one line: the text between the tags of its detail, or the message of its JSON."""
    try:
        content = json.loads(said)
        text = content["error"]["message"]
    except (ValueError, KeyError, TypeError):
        text = html.unescape(said.partition("<Detail>")[2].partition("</Detail>")[0] or said)
    return " ".join(str(text).split())
