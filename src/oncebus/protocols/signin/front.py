"""Signing in over HTTP, for tools that insist on an identity provider:

    POST  /adfs/oauth2/token, /{tenant}/oauth2/token, /{tenant}/oauth2/v2.0/token      a token for a rule and its key
    GET   /adfs/.well-known/openid-configuration, /{tenant}[/v2.0]/.well-known/…       where that is
    GET   /metadata/endpoints                                                          where everything is

The client id is the name of a rule of the namespace, the secret is one of its keys. `{tenant}` is any word, also behind
`/adfs`. The token is one of `oncebus.model.access.jwts`: it ends with its key.
"""

from __future__ import annotations

import base64
import binascii
import re
import uuid
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, unquote_plus

from starlette.responses import JSONResponse, Response
from starlette.types import Scope

from oncebus.model.access import Guard
from oncebus.model.access.jwts import make_jwt
from oncebus.protocols.http.errors import Refused, error_answer, wrong_method
from oncebus.protocols.http.limits import Limits
from oncebus.protocols.http.requests import HttpRequest
from oncebus.protocols.http.routes import respond_safely
from oncebus.protocols.management.writing import TENANT
from oncebus.protocols.signin import documents
from oncebus.values.durations import SECOND
from oncebus.values.errors import clip

TOKEN_SECONDS = 3600
LARGEST_BODY = 16 * 1024
_MOST_FIELDS = 50

_AUTHORITY = r"/(?P<authority>adfs/[^/]+|[^/]+)"
_TOKEN = re.compile(rf"{_AUTHORITY}/oauth2/(?:v2\.0/)?token/?", re.IGNORECASE)
_DISCOVERY = re.compile(rf"{_AUTHORITY}(?:/v2\.0)?/\.well-known/openid-configuration/?", re.IGNORECASE)
_KEYS = re.compile(rf"{_AUTHORITY}/discovery/(?:v2\.0/)?keys/?", re.IGNORECASE)
_METADATA = re.compile(r"/metadata/endpoints/?", re.IGNORECASE)


class OAuthRefused(Refused):
    """A request for a token is refused. `code` is OAuth's word for why."""

    def __init__(self, status: int, code: str, text: str) -> None:
        # A client that sent its secret in the header is asked for it in the same way.
        super().__init__(status, text, {"www-authenticate": "Basic"} if status == 401 else None)
        self.code = code


class _Given(NamedTuple):
    fields: dict[str, str]
    client: str
    secret: str


class SignIn:
    """Answers requests for tokens, and those that lead to them. It needs no token."""

    def __init__(self, guard: Guard, limits: Limits, namespace: Callable[[], str], now: Callable[[], int]) -> None:
        self._guard = guard
        self._limits = limits
        self._namespace = namespace
        self._now = now

    @staticmethod
    def owns(scope: Scope) -> bool:
        """Return whether a request belongs to signing in. Entities may have these paths, for other methods."""
        path, method = scope["raw_path"].decode("latin-1"), scope["method"]
        if method == "POST":
            return _TOKEN.fullmatch(path) is not None
        is_entity = b"api-version" in scope["query_string"].lower()
        return method == "GET" and (
            _METADATA.fullmatch(path) is not None
            or (not is_entity and (_DISCOVERY.fullmatch(path) or _KEYS.fullmatch(path)) is not None)
        )

    async def respond(self, request: HttpRequest) -> Response:
        """Return the response to a request; an error becomes a response too."""
        return await respond_safely(request, self._respond(request), _answer)

    async def _respond(self, request: HttpRequest) -> Response:
        path = request.scope["raw_path"].decode("latin-1")
        host = request.named_host or self._namespace()
        base = f"{request.scope['scheme']}://{host}"
        if _METADATA.fullmatch(path):
            return _json(documents.metadata(base, host))
        if _KEYS.fullmatch(path):
            return _json(documents.key_set())
        if found := _DISCOVERY.fullmatch(path):
            return _json(documents.openid_configuration(base, found["authority"]))
        found = _TOKEN.fullmatch(path)
        if found is None:
            raise wrong_method(request.method, ["GET"])
        return await self._token(request, base, unquote(found["authority"]))

    async def _token(self, request: HttpRequest, base: str, authority: str) -> Response:
        given = _read(await request.read_whole(LARGEST_BODY, self._limits.body_seconds), request)
        kind = given.fields.get("grant_type", "")
        if kind != "client_credentials":
            text = f"The grant type {clip(kind)} is not supported. Sign in with a client id and a secret."
            raise OAuthRefused(400, "unsupported_grant_type", text)
        rule = self._guard.rule_of(given.client, given.secret)
        if rule is None:
            text = "The client id and the secret are not the name of an authorization rule and one of its keys."
            raise OAuthRefused(401, "invalid_client", text)
        now = self._now() // SECOND
        audience = given.fields.get("resource") or given.fields.get("scope", "").removesuffix("/.default") or base
        person = str(uuid.uuid5(uuid.UUID(TENANT), rule.name))
        token = make_jwt(
            rule.name,
            given.secret,
            {
                "iss": f"{base}/{authority}",
                "aud": audience,
                "sub": person,
                "oid": person,
                "tid": TENANT,
                "appid": rule.name,
                "idtyp": "app",
                "iat": now,
                "nbf": now,
                "exp": now + TOKEN_SECONDS,
                "ver": "1.0",
            },
        )
        content = {
            "token_type": "Bearer",
            "expires_in": TOKEN_SECONDS,
            "ext_expires_in": TOKEN_SECONDS,
            "expires_on": now + TOKEN_SECONDS,
            "not_before": now,
            "resource": audience,
            "access_token": token,
        }
        return _json(content, headers={"cache-control": "no-store", "pragma": "no-cache"})


def _read(body: bytes, request: HttpRequest) -> _Given:
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise OAuthRefused(400, "invalid_request", "The body of the request is not url-encoded UTF-8.") from None
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise OAuthRefused(400, "invalid_request", "A field of the request is given more than once.")
    kind, _, basic = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "basic":
        return _Given(fields, fields.get("client_id", ""), fields.get("client_secret", ""))
    try:
        client, _, secret = base64.b64decode(basic, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        raise OAuthRefused(400, "invalid_request", "The header Authorization is not base64.") from None
    return _Given(fields, unquote_plus(client), unquote_plus(secret))


def _answer(error: Exception) -> Response:
    status, text, headers = error_answer(error)
    code = error.code if isinstance(error, OAuthRefused) else "invalid_request" if status < 500 else "server_error"
    return _json({"error": code, "error_description": text}, status, headers)


def _json(content: documents.Document, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse(content, status, headers)
