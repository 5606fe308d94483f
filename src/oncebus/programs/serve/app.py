"""The web application: all HTTP protocols over one broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import Metric
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from oncebus.broker.broker import Broker
from oncebus.model.access import Guard, Issuer, KeyFile, NamespaceRules
from oncebus.protocols.arm.front import Arm
from oncebus.protocols.atom.front import Atom
from oncebus.protocols.http.errors import error_response
from oncebus.protocols.http.front import Front, Reset
from oncebus.protocols.http.limits import Limits
from oncebus.protocols.http.paths import HEALTH, LIVE, READY
from oncebus.protocols.http.rendering import Renderer
from oncebus.protocols.http.routes import FrontRoute
from oncebus.protocols.http.worker import Worker
from oncebus.protocols.management.authorization_rules import AuthorizationRules
from oncebus.protocols.management.runtime import Observer
from oncebus.protocols.portal import Portal
from oncebus.protocols.signin.front import SignIn
from oncebus.protocols.templates.front import Deployments
from oncebus.values.errors import clip

_HEALTH = (HEALTH, LIVE, READY)


def make_app(
    broker: Broker,
    *,
    namespace_rules: NamespaceRules,
    host: str | None = None,
    issuer: Issuer | None = None,
    limits: Limits | None = None,
    keys: KeyFile | None = None,
    amqp_port: int | None = None,
    other_metrics: Callable[[], Iterable[Metric]] = tuple,
    portal_names: Iterable[str] = (),
    foreign: Callable[[str, str | None], str | None] | None = None,
    reset: Reset | None = None,
) -> Starlette:
    """Return the application over a broker.

    With `host`, tokens must be signed for that host. With `issuer`, its tokens are accepted too. With `keys`, clients
    can change the namespace's own rules and keys. `amqp_port` goes into connection strings if it is not the usual port.
    `other_metrics` are shown with the broker's. `portal_names` are host names that browsers may use for the gateway,
    besides localhost and IP addresses. With `foreign`, requests to other hosts and from web pages of other hosts are
    refused, except for health: it takes the headers Host and Origin, and returns the host in them that is not ours. The
    emulator needs this: its key is public, so a foreign web page whose host name resolves to this machine could
    otherwise send requests (DNS rebinding). Clients with Manage may call `reset`; without it the broker keeps its data.
    """
    limits = limits or Limits()
    guard = Guard(namespace_rules, lambda: broker.catalogue, broker.clock.token_time, host, issuer)
    observer = Observer(broker)
    rules = AuthorizationRules(broker, namespace_rules, keys)
    worker = Worker(broker.threads.own("bodies"))
    renderer = Renderer(worker)
    portal = Portal(broker, guard, limits, host, portal_names, renderer, rules, amqp_port)
    sign_in = SignIn(guard, limits, lambda: broker.catalogue.namespace.name, broker.clock.now)
    deployments = Deployments(broker, guard, limits, rules, amqp_port)
    arm = Arm(broker, guard, limits, observer, rules, worker, amqp_port)
    atom = Atom(broker, guard, limits, observer, worker)
    messages = Front(broker, guard, limits, other_metrics, renderer, reset)
    # The first route that owns a request answers it.
    routes = [
        FrontRoute(portal.owns, portal.respond),
        FrontRoute(sign_in.owns, sign_in.respond),
        FrontRoute(deployments.owns, deployments.respond),
        FrontRoute(arm.owns, arm.respond),
        FrontRoute(lambda scope: atom.owns(scope) and not messages.takes(scope), atom.respond),
        FrontRoute(lambda _: True, messages.respond),
    ]
    application = Starlette(routes=routes)
    if foreign is not None:
        application.add_middleware(OnlyKnownHosts, foreign=foreign)
    return application


class OnlyKnownHosts:
    """Refuses requests to and from other hosts, which defends against DNS rebinding and foreign pages."""

    def __init__(self, app: ASGIApp, foreign: Callable[[str, str | None], str | None]) -> None:
        self._app = app
        self._foreign = foreign

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or refuse a request."""
        app = self._app
        # Health is public, and whoever watches it may know the machine under any name.
        if scope["type"] == "http" and scope["raw_path"] not in _HEALTH:
            headers = Headers(scope=scope)
            other = self._foreign(headers.get("host", ""), headers.get("origin"))
            if other is not None:
                app = error_response(421, f"The host {clip(other)} is not a name of this broker.")
        await app(scope, receive, send)
