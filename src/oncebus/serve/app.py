"""The web application: all HTTP protocols over one broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import Metric
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from oncebus.access import Guard, KeyFile, NamespaceRules
from oncebus.arm.front import Arm
from oncebus.atom.front import Atom
from oncebus.broker.broker import Broker
from oncebus.errors import shown
from oncebus.http.errors import error_response
from oncebus.http.front import Front
from oncebus.http.limits import Limits
from oncebus.http.paths import HEALTH, LIVE, READY
from oncebus.http.rendering import Renderer
from oncebus.http.routes import FrontRoute
from oncebus.http.worker import Worker
from oncebus.management.authorization_rules import AuthorizationRules
from oncebus.management.runtime import Observer
from oncebus.portal import Portal
from oncebus.templates.front import Deployments

_HEALTH = (HEALTH, LIVE, READY)


def make_app(
    broker: Broker,
    *,
    namespace_rules: NamespaceRules,
    host: str | None = None,
    limits: Limits | None = None,
    keys: KeyFile | None = None,
    amqp_port: int | None = None,
    other_metrics: Callable[[], Iterable[Metric]] = tuple,
    portal_names: Iterable[str] = (),
    knows_host: Callable[[str], bool] | None = None,
) -> Starlette:
    """Return the application over a broker.

    With `host`, tokens must be signed for that host. With `keys`, clients can change the namespace's own rules and
    keys. `amqp_port` goes into connection strings if it is not the usual port. `other_metrics` are shown with the
    broker's. `portal_names` are host names that browsers may use for the gateway, besides localhost and IP addresses.
    With `knows_host`, requests to other hosts are refused, except for health. The emulator needs this: its key is
    public, so a foreign web page whose host name resolves to this machine could otherwise send requests (DNS
    rebinding).
    """
    limits = limits or Limits()
    guard = Guard(namespace_rules, lambda: broker.catalogue, broker.clock.now, host)
    observer = Observer(broker)
    rules = AuthorizationRules(broker, namespace_rules, keys)
    worker = Worker()
    renderer = Renderer(worker)
    portal = Portal(broker, guard, limits, host, portal_names, renderer)
    deployments = Deployments(broker, guard, limits, rules)
    arm = Arm(broker, guard, limits, observer, rules, worker, amqp_port)
    atom = Atom(broker, guard, limits, observer, worker)
    messages = Front(broker, guard, limits, other_metrics, renderer)
    # The first route that owns a request answers it.
    routes = [
        FrontRoute(portal.owns, portal.respond),
        FrontRoute(deployments.owns, deployments.respond),
        FrontRoute(arm.owns, arm.respond),
        FrontRoute(lambda scope: atom.owns(scope) and not messages.takes(scope), atom.respond),
        FrontRoute(lambda _: True, messages.respond),
    ]
    application = Starlette(routes=routes)
    if knows_host is not None:
        application.add_middleware(_OnlyKnownHosts, knows=knows_host)
    return application


class _OnlyKnownHosts:
    """Refuses requests whose Host header is not a name of this broker, which defends against DNS rebinding."""

    def __init__(self, app: ASGIApp, knows: Callable[[str], bool]) -> None:
        self._app = app
        self._knows = knows

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        # Health is public, and whoever watches it may know the machine under any name.
        if scope["type"] == "http" and scope["raw_path"] not in _HEALTH:
            host = Headers(scope=scope).get("host", "")
            if not self._knows(host):
                app = error_response(421, f"The host {shown(host)} is not a name of this broker.")
        await app(scope, receive, send)
