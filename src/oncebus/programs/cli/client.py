"""The HTTP client with which the commands talk to a running broker."""

from __future__ import annotations

import html
import json
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import httpx

from oncebus.values.errors import OncebusError

TIMEOUT_SECONDS = 30.0
_PAGE = 1000
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


class NotAnswered(OncebusError):
    """The broker cannot be reached, or refused a request.

    If it answered, `status` and `content` come from the answer.
    """

    def __init__(self, text: str, status: int | None = None, content: bytes = b"") -> None:
        super().__init__(text)
        self.status = status
        self.content = content


class Answer(NamedTuple):
    """The broker's answer to a request. The names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Client:
    """Sends requests to one broker over one connection. Close it with `close`, or use it as a context manager.

    If `certificate` is given, the client trusts only the first certificate in that file, under any host name: only the
    broker has its key. With `authority`, it trusts certificates for the host that the ones in that file have signed.
    """

    def __init__(self, url: str, token: str, certificate: Path | None = None, *, authority: Path | None = None) -> None:
        self.url = url.rstrip("/")
        self._http = _http(self.url, token, certificate, authority)
        self._is_kept = False

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
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
        """Send a request and return the answer. Raises `NotAnswered` if the broker refuses it or does not answer.

        A GET is sent once more if the kept connection turns out to be closed. Other methods are not repeated, because
        the broker may have executed them already.
        """
        try:
            response = self._response(method, path, body, headers, timeout)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise NotAnswered(f"The broker at {self.url} cannot be reached: {_words(error)}.") from None
        answer = Answer(response.status_code, response.headers, response.content)
        if answer.status >= 300:
            text = _detail(response.text) or response.reason_phrase
            raise NotAnswered(f"The broker at {self.url} answers {answer.status}: {text}", answer.status, answer.body)
        return answer

    def ask_json(self, method: str, path: str, content: object = None, **options: Any) -> dict[str, Any]:
        """Send `content` as JSON and return the JSON object of the answer, or {} if the answer is empty."""
        body = b"" if content is None else json.dumps(content).encode()
        headers = {} if content is None else {"Content-Type": "application/json"}
        answer = self.ask(method, path, body, headers, **options)
        if not answer.body:
            return {}
        try:
            found = json.loads(answer.body)
        except ValueError as error:
            raise self.not_a_broker(f": {error}") from None
        if not isinstance(found, dict):
            raise self.not_a_broker()
        return found

    def pages(self, path: str, name: str, after: int = 0, **query: object) -> Iterator[dict[str, Any]]:
        """Yield the records of a list after the one with the number `after`, oldest first. Fetches page by page.

        `name` is the member of each answer that holds the records. A query parameter that is None is left out.
        """
        given = {each.replace("_", "-"): value for each, value in query.items() if value is not None}
        position: int | None = after
        while position is not None:
            page = self.ask_json("GET", f"{path}?{urlencode({'limit': _PAGE, 'after': position} | given)}")
            if not {name, "next"} <= page.keys():
                raise self.not_a_broker()
            yield from page[name]
            position = page["next"]

    def not_a_broker(self, reason: str = "") -> NotAnswered:
        """Return the error for an answer that an Oncebus broker would not give."""
        return NotAnswered(f"The server at {self.url} is not an Oncebus broker{reason}.")

    def readiness_note(self) -> str:
        """Return a sentence to append to "there are no messages" if the broker is not ready yet, else "".

        Until Spark is ready, messages wait in the pipeline, and nobody can see them yet.
        """
        try:
            self.ask("GET", "/health/ready")
        except NotAnswered as error:
            if error.status != 503:
                raise
            return (
                " But the pipeline is not ready (it may still be starting), so messages may be waiting in it:"
                f" {_detail(error.content.decode(errors='replace'))}"
            )
        return ""

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


def _http(url: str, token: str, certificate: Path | None, authority: Path | None) -> httpx.Client:
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
            trusted = _trusting(certificate) if authority is None else ssl.create_default_context(cafile=authority)
        except (OSError, ValueError) as error:
            file = authority or certificate
            raise NotAnswered(f"Certificate '{file}' cannot be read: {_words(error)}.") from None
    # `trust_env=False`, because the environment may name a proxy, and no proxy must see the token.
    return httpx.Client(headers={"Authorization": token}, verify=trusted, trust_env=False)


def _trusting(certificate: Path | None) -> ssl.SSLContext:
    """Return a context that trusts one certificate; without one, those that the system trusts."""
    if certificate is None:
        return ssl.create_default_context()
    text = certificate.read_text(encoding="ascii")
    # The file may hold a key and the chain up to an authority. Trusting that would trust all its other certificates.
    first = text[text.find(_BEGIN) : text.find(_END) + len(_END)]
    context = ssl.create_default_context(cadata=f"{first}\n")
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    # This one is trusted as it is. From Python 3.13 on, the default refuses it if it does not say which key signed it.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.check_hostname = False
    return context


def _words(error: BaseException) -> str:
    """Return the reason for a failed request, in the words of the operating system or of TLS if the error has them."""
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


def _detail(body: str) -> str:
    """Return the error text in a response on one line: the message in JSON, the Detail in XML, else the whole body."""
    try:
        content = json.loads(body)
        text = content["error"]["message"] if "error" in content else content["message"]
    except (ValueError, KeyError, TypeError):
        text = html.unescape(body.partition("<Detail>")[2].partition("</Detail>")[0] or body)
    return " ".join(str(text).split())
