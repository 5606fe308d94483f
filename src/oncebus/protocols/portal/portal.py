"""The portal's entry point: routing, signing in and out, cookies, and error pages."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import Scope

from oncebus.broker.broker import Broker
from oncebus.model.access import AccessRefused, Guard, Reason
from oncebus.model.entities import EntityError
from oncebus.protocols.http.errors import HEADERS_TOO_LONG, Refused, error_answer, wrong_method
from oncebus.protocols.http.limits import Limits
from oncebus.protocols.http.paths import has_api_version, query_of, segments_of
from oncebus.protocols.http.rendering import Renderer
from oncebus.protocols.http.requests import HttpRequest
from oncebus.protocols.management.authorization_rules import AuthorizationRules
from oncebus.protocols.monitoring.health import Health
from oncebus.protocols.portal import (
    duplicates,
    entity,
    forgets,
    message_actions,
    messages,
    overview,
    pipeline,
    policies,
    quarantine,
    rules,
    search,
    sending,
)
from oncebus.protocols.portal import entity_changes as changes
from oncebus.protocols.portal.forms import Form, read_form
from oncebus.protocols.portal.hosts import Hosts, port_of
from oncebus.protocols.portal.layout import PRIVATE, PUBLIC, PageFrame, page, redirect
from oncebus.protocols.portal.links import BASE, STATIC, is_ours, link, static_file
from oncebus.protocols.portal.markup import Content, tag
from oncebus.protocols.portal.rates import Rates
from oncebus.protocols.portal.remembered import Remembered
from oncebus.protocols.portal.sessions import Failures, PortalSession, PortalSessions, Seal, fresh_id
from oncebus.protocols.portal.signing_in import WRONG_KEY, Unreadable, read_key, sign_in_page, verify_key
from oncebus.protocols.portal.visits import Desk, Visit
from oncebus.values.hosts import is_this_machine

log = logging.getLogger(__name__)

LARGEST_FORM = 1 << 20
_LARGEST_SIGN_IN = 16 * 1024
_SIGN_IN_SECONDS = 10.0
_FIRST_SEGMENT = re.compile(rb"/(?:\$|%24)portal(?:/|$)", re.IGNORECASE)
_TITLES = {404: "Not found", 503: "Try again later", 500: "Something went wrong"}
_FOREVER = "public, max-age=31536000, immutable"

Handler = Callable[[Visit], Awaitable[Response]]

PAGES: dict[str, dict[str, Handler]] = {
    "": {"GET": overview.show},
    "live": {"GET": overview.live},
    "search": {"GET": search.show},
    "pipeline": {"GET": pipeline.show},
    "duplicates": {"GET": duplicates.show_all},
    "create": {"GET": changes.show_create, "POST": changes.create},
    "entity": {"GET": entity.show},
    "entity/live": {"GET": entity.live},
    "entity/change": {"GET": changes.show_change, "POST": changes.change},
    "entity/detection": {"GET": changes.show_detection, "POST": changes.switch_on_detection},
    "entity/delete": {"GET": changes.show_delete, "POST": changes.delete},
    "entity/duplicates": {"GET": duplicates.show},
    "entity/forget": {"POST": forgets.forget},
    "entity/messages": {"GET": messages.show},
    "entity/purge": {"POST": message_actions.purge},
    "entity/resubmit": {"POST": message_actions.resubmit},
    "entity/discard": {"POST": message_actions.discard},
    "entity/download": {"POST": message_actions.download},
    "entity/send": {"GET": sending.show, "POST": sending.send},
    "entity/rule": {"GET": rules.show_add, "POST": rules.add},
    "entity/rule/remove": {"POST": rules.remove},
    "quarantine": {"GET": quarantine.show, "POST": quarantine.decide},
    "policies": {"GET": policies.show, "POST": policies.create},
    "policies/keys": {"GET": policies.show_keys},
    "policies/renew": {"POST": policies.renew},
    "policies/delete": {"POST": policies.delete},
}
# The script polls these. A poll does not extend the session, and an error is not a page.
_FIGURES = frozenset({"live", "entity/live"})


class Portal:
    """Answers the requests below `/$portal/`."""

    def __init__(
        self,
        broker: Broker,
        guard: Guard,
        limits: Limits,
        host: str | None,
        names: Iterable[str],
        renderer: Renderer,
        policies: AuthorizationRules,
        amqp_port: int | None = None,
    ) -> None:
        """Tokens must be valid for `host`; `names` are other names under which browsers reach the gateway."""
        passed = broker.clock.passed
        health = Health(broker, lag=limits.lag, heartbeat=limits.heartbeat)
        remembered = Remembered(broker.remembered, passed, broker.threads)
        self._desk = Desk(broker, guard, health, Rates(passed), remembered, renderer, policies, amqp_port)
        broker.watch(self._desk.rates.record)
        self._limits = limits
        self._host = host or "oncebus"
        self.hosts = Hosts([host, *names])
        self._sessions = PortalSessions(passed)
        self._failures = Failures(passed)
        self._seal = Seal()

    def owns(self, scope: Scope) -> bool:
        """Return whether a request is for the portal. This includes browser requests to `/`, which are redirected."""
        raw_path: bytes = scope["raw_path"]
        if raw_path == b"/":
            headers = Headers(scope=scope)
            wants_page = "text/html" in headers.get("accept", "").lower()
            is_client = "authorization" in headers or has_api_version(scope["query_string"])
            return wants_page and not is_client and scope["method"] in ("GET", "HEAD")
        return _FIRST_SEGMENT.match(raw_path) is not None

    async def respond(self, request: HttpRequest) -> Response:
        """Return the response to a request; an error becomes a page."""
        try:
            response = await self._respond(request)
        except ClientDisconnect:
            # The client has disconnected.
            return Response(status_code=400)
        except Exception as error:
            shown = _error_page(error)
            response = shown.on(page(PageFrame(), shown.title, *shown.content, status=shown.status))
        await request.leave(response)
        return response

    async def _respond(self, request: HttpRequest) -> Response:
        host = request.headers.get("host", "")
        if not self.hosts.knows(host):
            raise Refused(
                421,
                f"The portal does not answer to the name {host!r:.100}. Open it by an IP address, as localhost, "
                "or by a name from the gateway's settings.",
            )
        raw_path: bytes = request.scope["raw_path"]
        if not raw_path.startswith(BASE.encode()):
            return redirect(BASE, {"vary": "accept"})
        if request.header_bytes > self._limits.header_bytes:
            raise Refused(431, HEADERS_TOO_LONG)
        name = "/".join(segments_of(raw_path)[1:])
        if name.startswith("static/"):
            return _static(name.removeprefix("static/"))
        method = "GET" if request.method == "HEAD" else request.method
        if method == "POST":
            _check_origin(request, host)
        if name == "sign-in":
            return await self._sign_in(request, method)
        if name == "sign-out":
            return await self._sign_out(request, method)
        # The script asks for these by itself, so they are no use of the session.
        is_poll = name in _FIGURES or b"poll=1" in request.scope["query_string"].split(b"&")
        session = self._session(request, is_use=not is_poll)
        if session is None:
            return self._not_signed_in(request, name, method, is_poll=is_poll)
        return await self._visit(request, session, name, method)

    async def _visit(self, request: HttpRequest, session: PortalSession, name: str, method: str) -> Response:
        try:
            # Verify each request, because the key may have been replaced, or its rule deleted.
            grant = self._desk.guard.verify(session.token)
        except AccessRefused:
            self._sessions.end(session.id)
            return self._not_signed_in(request, name, method)
        request.identify(grant.signer)
        seal = self._seal.of(session.id)
        query = query_of(request.scope["query_string"])
        handlers = PAGES.get(name)
        form = Form()
        if handlers is not None and method == "POST" and method in handlers:
            form = await self._form(request, LARGEST_FORM, session.id)
        is_plain = request.scope["scheme"] == "http"
        visit = Visit(self._desk, session, grant, seal, query, form, request.named_host, is_plain)
        try:
            if handlers is None:
                raise Refused(404, f"The portal has no page {name!r:.100}.")
            if method not in handlers:
                raise wrong_method(request.method, handlers)
            return await handlers[method](visit)
        except Exception as error:
            shown = _error_page(error)
            if name in _FIGURES:
                return JSONResponse({"error": shown.text}, shown.status, PRIVATE)
            # The error page keeps the frame of a signed-in visitor.
            return shown.on(visit.page(shown.title, *shown.content, status=shown.status))

    # Signing in and out

    async def _sign_in(self, request: HttpRequest, method: str) -> Response:
        if method not in ("GET", "POST"):
            raise wrong_method(request.method, ["GET", "POST"])
        name = self._cookie_name(request, "form")
        nonce = request.cookies.get(name, "")
        if method == "GET":
            if self._session(request) is not None:
                return redirect(BASE)
            onward = query_of(request.scope["query_string"]).get("onward", "")
            nonce = nonce or fresh_id()
            response = sign_in_page(self._seal.of(nonce), Form(), onward=onward, is_open=_is_open(request))
            self._set_cookie(response, request, name, nonce)
            return response
        form = await self._form(request, _LARGEST_SIGN_IN, nonce, _SIGN_IN_SECONDS)
        onward = form["onward"]
        address = request.client.host if request.client else "unknown"
        try:
            verified = verify_key(read_key(form), self._desk.guard, self._host, self._desk.broker.clock.now())
        except Unreadable as error:
            return sign_in_page(self._seal.of(nonce), form, str(error), 400, onward=onward)
        except AccessRefused as error:
            wait = self._failures.wait_of(address)
            if wait:
                # Behind a proxy all visitors share one address, so a correct key is accepted nevertheless.
                text = f"Too many attempts failed. Try again in {wait} seconds."
                response = sign_in_page(self._seal.of(nonce), form, text, 429, onward=onward)
                response.headers["retry-after"] = str(wait)
                return response
            self._failures.note(address)
            log.warning("A sign-in to the portal failed", extra={"fields": {"address": address}})
            # Only a visitor who has the key learns about other problems.
            text = WRONG_KEY if error.reason in (Reason.SIGNATURE, Reason.MALFORMED) else str(error)
            return sign_in_page(self._seal.of(nonce), form, text, 403, onward=onward)
        self._failures.forget(address)
        self._sessions.end(request.cookies.get(self._cookie_name(request), ""))
        session = self._sessions.begin(verified.token)
        log.info("Signed in to the portal", extra={"fields": {"rule": verified.grant.rule, "address": address}})
        response = redirect(onward if is_ours(onward) else BASE)
        self._set_cookie(response, request, self._cookie_name(request), session.id)
        self._set_cookie(response, request, name, "")
        return response

    async def _sign_out(self, request: HttpRequest, method: str) -> Response:
        if method != "POST":
            raise wrong_method(request.method, ["POST"])
        session = self._session(request)
        if session is not None:
            await self._form(request, _LARGEST_SIGN_IN, session.id)
            self._sessions.end(session.id)
        response = redirect(link("sign-in"))
        self._set_cookie(response, request, self._cookie_name(request), "")
        return response

    def _not_signed_in(self, request: HttpRequest, name: str, method: str, *, is_poll: bool = False) -> Response:
        if is_poll or name in _FIGURES:
            return JSONResponse({"error": "Not signed in."}, 401, PRIVATE)
        onward = None
        if method == "GET" and name:
            query = request.scope["query_string"].decode("latin-1")
            onward = f"{request.scope['raw_path'].decode('latin-1')}{'?' if query else ''}{query}"
        address = link("sign-in", onward=onward if onward is not None and is_ours(onward) else None)
        return redirect(address)

    def _session(self, request: HttpRequest, *, is_use: bool = True) -> PortalSession | None:
        return self._sessions.find(request.cookies.get(self._cookie_name(request), ""), is_use=is_use)

    async def _form(self, request: HttpRequest, most: int, cookie: str, seconds: float | None = None) -> Form:
        """Return the form in a request. Raises `Refused` unless its seal matches the visitor's cookie."""
        body = await request.read_whole(most, seconds or self._limits.body_seconds, "form")
        form = read_form(body, request.headers.get("content-type", ""))
        if not self._seal.is_right(cookie, form["seal"]):
            raise Refused(403, "The form does not belong to this session. Open the page again, and send it from there.")
        return form

    # Cookies

    def _cookie_name(self, request: HttpRequest, what: str = "session") -> str:
        # Cookies do not distinguish ports. Without the port, two brokers on one machine would sign each other out.
        port = port_of(request.headers.get("host", ""), request.scope["scheme"])
        prefix = "__Secure-" if request.scope["scheme"] == "https" else ""
        return f"{prefix}oncebus-{what}-{port}"

    def _set_cookie(self, response: Response, request: HttpRequest, name: str, value: str) -> None:
        """Set a cookie for the portal only, until the browser closes. An empty value deletes it."""
        response.set_cookie(
            name,
            value,
            max_age=None if value else 0,
            path=BASE,
            secure=request.scope["scheme"] == "https",
            httponly=True,
            samesite="strict",
        )


def _static(name: str) -> Response:
    if name not in STATIC:
        raise Refused(404, "There is no such file.")
    headers = {**PUBLIC, "cache-control": _FOREVER, "content-type": STATIC[name]}
    return Response(static_file(name), 200, headers)


def _is_open(request: HttpRequest) -> bool:
    """Return whether others on the network can read the request, because it comes unencrypted from another machine."""
    if request.scope["scheme"] == "https" or request.client is None:
        return False
    return not is_this_machine(request.client.host)


def _check_origin(request: HttpRequest, host: str) -> None:
    """Raise `Refused` if the browser reports that another site sent the form."""
    origin = request.headers.get("origin")
    # The scheme is not compared, because TLS may end at a proxy.
    is_foreign = origin is not None and origin.partition("://")[2] != host
    if is_foreign or request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Refused(403, "The form was sent from another site.")


class _ErrorPage(NamedTuple):
    """The content of an error page."""

    status: int
    title: str
    text: str
    headers: dict[str, str]

    @property
    def content(self) -> list[Content]:
        back = tag("p", tag("a", "To the overview", href=BASE))
        return [tag("h1", self.title), tag("p", self.text, class_="lead"), back]

    def on(self, response: Response) -> Response:
        response.headers.update(self.headers)
        return response


def _error_page(error: Exception) -> _ErrorPage:
    if isinstance(error, AccessRefused):
        return _ErrorPage(403, "Not permitted", f"The key you signed in with does not permit this. {error}", {})
    known = error_answer(error)
    text = str(error) if isinstance(error, EntityError) and known.status != 503 else known.text
    return _ErrorPage(known.status, _TITLES.get(known.status, "Refused"), text, known.headers)
