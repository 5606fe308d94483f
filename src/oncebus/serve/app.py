"""The application: all fronts of HTTP over one broker."""

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
from oncebus.http.paths import has_api_version
from oncebus.http.rendering import Renderer
from oncebus.http.routes import FrontRoute
from oncebus.management.authorization_rules import AuthorizationRules
from oncebus.management.runtime import Observer
from oncebus.portal import Portal
from oncebus.templates.front import Deployments


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
    only_known_hosts: bool = False,
) -> Starlette:
    """Return the application over a broker. With `host`, tokens must be for that one.

    With `keys`, the namespace's own rules and keys can be changed. `amqp_port` stands in the connection strings that
    are handed out, where it is not the usual one. `other_metrics` are shown with the broker's. `portal_names` are the
    hosts by which browsers know the gateway, besides localhost and addresses in numbers. With `only_known_hosts`
    requests that name another host are refused: where the key is no secret, it must not be a stranger's page that asks.
    """
    limits = limits or Limits()
    guard = Guard(namespace_rules, lambda: broker.catalogue, broker.clock.now, host)
    observer = Observer(broker)
    rules = AuthorizationRules(broker, namespace_rules, keys)
    renderer = Renderer()
    portal = Portal(broker, guard, limits, host, portal_names, renderer)
    deployments = Deployments(broker, guard, limits, rules)
    arm = Arm(broker, guard, limits, observer, rules, amqp_port)
    atom = Atom(broker, guard, limits, observer)
    messages = Front(broker, guard, limits, other_metrics, renderer)
    # The first that owns a request answers it.
    routes = [
        FrontRoute(portal.owns, portal.respond),
        FrontRoute(deployments.owns, deployments.respond),
        FrontRoute(arm.owns, arm.respond),
        FrontRoute(lambda scope: _is_managing(scope) and not messages.takes(scope), atom.respond),
        FrontRoute(lambda _: True, messages.respond),
    ]
    application = Starlette(routes=routes)
    if only_known_hosts:
        application.add_middleware(_OnlyKnownHosts, knows=portal.hosts.knows)
    return application


def _is_managing(scope: Scope) -> bool:
    return has_api_version(scope["query_string"])


class _OnlyKnownHosts:
    """Refuses requests to a host that was made to lead here."""

    def __init__(self, app: ASGIApp, knows: Callable[[str], bool]) -> None:
        self._app = app
        self._knows = knows

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http":
            host = Headers(scope=scope).get("host", "")
            if not self._knows(host):
                app = error_response(421, f"The host {shown(host)} is not this broker's.")
        await app(scope, receive, send)
