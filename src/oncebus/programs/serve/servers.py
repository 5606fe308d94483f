"""The servers of a gateway: AMQP and HTTP over one broker, at sockets that listen already."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import NamedTuple

from prometheus_client import Metric

from oncebus.broker.broker import Broker
from oncebus.model.access import EMULATOR_RULE, AuthorizationRule, KeyFile, Right
from oncebus.programs.serve.addresses import Sockets
from oncebus.programs.serve.app import make_app
from oncebus.programs.serve.descriptors import ConnectionLimits
from oncebus.programs.serve.identity import trusted_issuer
from oncebus.programs.serve.metrics_port import serve_metrics
from oncebus.protocols.http import CannotListen, Limits, Tls, server
from oncebus.protocols.http.front import Reset
from oncebus.protocols.http.server import HttpServer
from oncebus.protocols.portal.hosts import Hosts
from oncebus.protocols.servicebus import AmqpLimits, ServiceBusServer, make_server
from oncebus.protocols.servicebus.upgrade import Upgrade
from oncebus.values.settings import Settings, SettingsError


class Servers(NamedTuple):
    """The servers of one gateway."""

    http: HttpServer
    amqp: ServiceBusServer
    metrics_port: int | None

    @property
    def ports(self) -> dict[str, int]:
        """Return the port of metrics, if there is one, by name, for the log."""
        return {} if self.metrics_port is None else {"metrics_port": self.metrics_port}

    def cut(self) -> None:
        """Drop all connections at once, as a failing network does."""
        self.amqp.cut()
        self.http.cut()


@asynccontextmanager
async def open_servers(
    settings: Settings,
    broker: Broker,
    keys: KeyFile,
    bound: Sockets,
    allowed: ConnectionLimits,
    *,
    more_metrics: Callable[[], Iterable[Metric]] = tuple,
    reset: Reset | None = None,
) -> AsyncIterator[Servers]:
    """Serve clients until the end of the block. With `reset`, clients with Manage may reset the broker."""
    rules = namespace_rules(keys, settings)
    signing_keys, issuer = trusted_issuer(settings)
    amqp = make_server(
        broker,
        namespace_rules=rules,
        host=settings.token_host,
        issuer=issuer,
        limits=AmqpLimits(connections=allowed.connections, strangers=allowed.strangers),
    )
    foreign: Callable[[str, str | None], str | None] | None = None
    if settings.emulator:
        names = [settings.token_host, settings.host]
        foreign = Hosts(names, private_names=settings.insecure_emulator).foreign
    app = make_app(
        broker,
        namespace_rules=rules,
        host=settings.token_host,
        issuer=issuer,
        limits=Limits(lag=settings.lag_limit, heartbeat=settings.heartbeat_limit),
        keys=keys,
        amqp_port=bound.client_port,
        other_metrics=lambda: (*amqp.metrics(), *more_metrics()),
        portal_names=[settings.host],
        foreign=foreign,
        reset=reset,
    )
    http = server(
        app,
        bound.http if bound.http is not bound.both else None,
        _certificate(settings),
        most_connections=allowed.http,
        upgrade=Upgrade(amqp.make_protocol, foreign),
    )
    certificate = tls_context(settings)
    if signing_keys is not None:
        signing_keys.start()
    await http.start()
    if bound.amqp is not bound.both:
        await amqp.start(bound.amqp, certificate)
    if bound.both is not None:
        await amqp.start(bound.both, certificate, http.make_protocol)
    try:
        async with serve_metrics(settings, broker, lambda: (*amqp.metrics(), *more_metrics())) as metrics_port:
            yield Servers(http, amqp, metrics_port)
    finally:
        await asyncio.gather(http.stop(), amqp.stop())
        if signing_keys is not None:
            await signing_keys.stop()


def namespace_rules(keys: KeyFile, settings: Settings) -> Callable[[], Sequence[AuthorizationRule]]:
    """Return a function that returns the namespace's current authorization rules.

    The rule of the setting `metrics_rule` is only for metrics. Raises `SettingsError` if no other one has Manage.
    """
    known = (EMULATOR_RULE,) if settings.emulator else ()
    name = settings.metrics_rule
    if name is None:
        return lambda: (*keys.rules(), *known)

    def limited(rule: AuthorizationRule) -> AuthorizationRule:
        # The commands find a rule whose name differs in letter case, so the setting must limit it too.
        return replace(rule, only_metrics=True) if rule.name.lower() == name.lower() else rule

    def current() -> Sequence[AuthorizationRule]:
        return (*map(limited, keys.rules()), *known)

    if not any(Right.MANAGE in rule.rights and not rule.only_metrics for rule in current()):
        raise SettingsError(f"Setting 'metrics_rule' has value {name!r}. No other authorization rule has Manage.")
    return current


def _certificate(settings: Settings) -> Tls | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return Tls(settings.tls_cert, settings.tls_key)


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """Return the TLS context for AMQP; None without TLS. Raises `CannotListen` if the certificate cannot be used."""
    if settings.tls_cert is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except OSError as error:
        place = f"'{settings.tls_cert}' with '{settings.tls_key}'"
        raise CannotListen(f"Certificate {place} cannot be used: {error.strerror or error}.") from error
    return context
