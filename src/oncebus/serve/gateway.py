"""The gateway as a process: the broker, its keys and its protocols, until it is asked to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.applications import Starlette

from oncebus.access import EMULATOR_RULE, AuthorizationRule, KeyFile
from oncebus.broker.broker import Broker
from oncebus.durations import SECOND
from oncebus.entities import Namespace, Tier
from oncebus.errors import OncebusError
from oncebus.folders import Folders
from oncebus.http import CannotListen, HttpServer, Limits, Tls, server
from oncebus.serve.addresses import Sockets, forget_url, url_of, write_url
from oncebus.serve.app import make_app
from oncebus.serve.certificate import with_certificate
from oncebus.serve.descriptors import shares_of_this_process
from oncebus.serve.start_files import files_at_start
from oncebus.servicebus import Limits as AmqpLimits
from oncebus.servicebus import make_server
from oncebus.settings import Settings

if TYPE_CHECKING:
    from oncebus.management.entity_file import EntityFile

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
RETRY_SECONDS = 0.5
SWITCH_SECONDS = 0.0005


class GatewayError(OncebusError):
    """The gateway cannot run with these settings."""


async def run_gateway(
    settings: Settings,
    *,
    entities: Path | None = None,
    sockets: Sockets | None = None,
    parent: int | None = None,
    tell: Callable[[str, str], None] = lambda what, url: None,  # noqa: ARG005
) -> None:
    """Serve until SIGTERM or SIGINT, or until the process `parent` is gone.

    `tell` is called with "open" once requests are answered, and with "ready" once a row that was appended after that
    has come out of the pipeline; both times with the address.
    """
    # The threads of inbox and store give up the interpreter's lock at every call of the system, and should soon get it
    # back while the loop computes.
    sys.setswitchinterval(SWITCH_SECONDS)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    wanted = files_at_start(settings, entities)
    settings = with_certificate(settings)
    keys = KeyFile(settings.key_path)
    with contextlib.closing(sockets or Sockets.open(settings)) as bound:
        keys.create()
        keys.rules()
        broker = await Broker.open(
            Folders(settings.data),
            shards=settings.shards,
            namespace=Namespace(settings.namespace, Tier(settings.tier or Tier.STANDARD)),
            most_bytes=settings.inbox_limit,
            duplicates_kept=settings.drop_record,
            # Not healthy before something has come through.
            silent_for=settings.heartbeat_limit / SECOND + 1,
        )
        try:
            await _bring_up_to_date(broker, settings, wanted)
            broker.start()
            await _serve(settings, broker, keys, bound, stopping, parent, tell)
        finally:
            await broker.close()
    log.info("The gateway has stopped")


def namespace_rules(keys: KeyFile, settings: Settings) -> Callable[[], Sequence[AuthorizationRule]]:
    """The rules of the namespace, as they are whenever it is called."""
    known = (EMULATOR_RULE,) if settings.emulator else ()
    return lambda: (*keys.rules(), *known)


async def _bring_up_to_date(broker: Broker, settings: Settings, wanted: Sequence[EntityFile]) -> None:
    """Make the catalogue what the settings and the files ask for."""
    namespace = broker.catalogue.namespace
    if namespace.name != settings.namespace:
        raise GatewayError(
            f"Setting 'namespace' has value '{settings.namespace}', but data folder '{settings.data}' is of the "
            f"namespace '{namespace.name}'. Set it to that."
        )
    tier = Tier(settings.tier or namespace.tier)
    if namespace.tier is not tier:
        await broker.change(lambda catalogue, _: catalogue.at_tier(tier))
    for file in wanted:
        for warning in file.warnings:
            log.warning("%s: %s", file.name, warning)
        if file.added_to(broker.catalogue, 0) is not broker.catalogue:
            await broker.change(file.added_to)


async def _serve(
    settings: Settings,
    broker: Broker,
    keys: KeyFile,
    bound: Sockets,
    stopping: asyncio.Event,
    parent: int | None,
    tell: Callable[[str, str], None],
) -> None:
    url = url_of(settings, bound.http)
    rules = namespace_rules(keys, settings)
    places = shares_of_this_process()
    amqp = make_server(
        broker,
        namespace_rules=rules,
        host=settings.token_host,
        limits=AmqpLimits(connections=places.connections, strangers=places.strangers),
    )
    app = make_app(
        broker,
        namespace_rules=rules,
        host=settings.token_host,
        limits=Limits(lag=settings.lag_limit, heartbeat=settings.heartbeat_limit),
        keys=keys,
        amqp_port=bound.amqp_port,
        other_metrics=amqp.metrics,
        portal_names=[settings.host],
        only_known_hosts=settings.emulator,
    )
    http = _server_at(app, bound.http, settings, places.http)
    certificate = tls_context(settings)
    await http.start()
    await amqp.start(bound.amqp, certificate)
    write_url(settings.data, url)
    log.info("The gateway listens", extra={"fields": {"url": url, "amqp_port": bound.amqp_port}})
    tell("open", url)
    tasks = [asyncio.create_task(_tell_when_ready(broker, url, tell))]
    if parent is not None:
        tasks.append(asyncio.create_task(_watch(parent, stopping)))
    try:
        await stopping.wait()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        forget_url(settings.data)
        await asyncio.gather(http.stop(), amqp.stop())


def _server_at(app: Starlette, bound: socket.socket, settings: Settings, most_connections: int) -> HttpServer:
    """The server at a socket that is there already, perhaps since an earlier gateway."""
    tls = None
    if settings.tls_cert is not None and settings.tls_key is not None:
        tls = Tls(settings.tls_cert, settings.tls_key)
    return server(app, bound, tls, most_connections=most_connections)


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """What AMQP is encrypted with, where it is. Raises `CannotListen` for a certificate that cannot be used."""
    if settings.tls_cert is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except OSError as error:
        place = f"'{settings.tls_cert}' with '{settings.tls_key}'"
        raise CannotListen(f"Certificate {place} cannot be used: {error.strerror or error}.") from error
    return context


async def _watch(parent: int, stopping: asyncio.Event) -> None:
    """Stop when the process that started us is gone."""
    while os.getppid() == parent:
        await asyncio.sleep(LOOK_SECONDS)
    log.warning("The process that started the gateway is gone; it ends too")
    stopping.set()


async def _tell_when_ready(broker: Broker, url: str, tell: Callable[[str, str], None]) -> None:
    while True:
        try:
            await broker.pipeline.probe()
            break
        except OncebusError as error:
            log.error("The inbox takes nothing: %s", error)
            await asyncio.sleep(RETRY_SECONDS)
    tell("ready", url)
