"""The gateway process: runs the broker and its protocols until it is asked to stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import ssl
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import Metric

from oncebus.broker.broker import Broker
from oncebus.engine.engine import Engine
from oncebus.engine.folders import Folders
from oncebus.model.access import EMULATOR_RULE, AuthorizationRule, KeyFile
from oncebus.model.entities import Namespace, Tier
from oncebus.programs.serve.addresses import ClientAddress, Sockets, forget_addresses, write_addresses
from oncebus.programs.serve.app import make_app
from oncebus.programs.serve.certificate import with_certificate
from oncebus.programs.serve.descriptors import limits_of_this_process
from oncebus.programs.serve.identity import trusted_issuer
from oncebus.programs.serve.start_files import files_at_start
from oncebus.protocols.http import CannotListen, Limits, Tls, server
from oncebus.protocols.monitoring import tracing
from oncebus.protocols.portal.hosts import Hosts
from oncebus.protocols.servicebus import AmqpLimits, make_server
from oncebus.protocols.servicebus.upgrade import Upgrade
from oncebus.values.durations import SECOND
from oncebus.values.errors import OncebusError
from oncebus.values.hosts import is_this_machine
from oncebus.values.settings import Settings
from oncebus.values.threads import Threads

if TYPE_CHECKING:
    from oncebus.protocols.management.entity_file import EntityFile

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
RETRY_SECONDS = 0.5
SWITCH_SECONDS = 0.0005
OBJECTS_BEFORE_COLLECTING = 50_000


class GatewayError(OncebusError):
    """The gateway cannot run with these settings."""


def tune() -> None:
    """Set up this process for the work of a gateway."""
    # The threads of inbox and store release the GIL at every system call. A short switch interval gives it back to them
    # soon while the event loop computes.
    sys.setswitchinterval(SWITCH_SECONDS)
    # Messages are many small objects that nothing refers to in a circle. Looking for circles after every 700 of them
    # costs the store a fifteenth of its time, and what was made so far stays for ever.
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS_BEFORE_COLLECTING, *gc.get_threshold()[1:])


async def run_gateway(
    settings: Settings,
    *,
    entities: Path | None = None,
    sockets: Sockets | None = None,
    parent: int | None = None,
    announce: Callable[[str, str], None] = lambda event, url: None,  # noqa: ARG005
) -> None:
    """Run the gateway until SIGTERM or SIGINT, or until the process `parent` has ended.

    Calls `announce` with an event and the URL: "open" once the gateway answers requests, and "ready" once the pipeline
    has processed a row that was appended after that.
    """
    tune()
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
        threads = Threads()
        broker = await Broker.open(
            await threads.run(_open_engine, settings),
            namespace=Namespace(settings.namespace, Tier(settings.tier or Tier.STANDARD), settings.longest_window),
            most_bytes=settings.inbox_limit,
            # Starts unhealthy, until something has come out of the pipeline.
            silent_for=settings.heartbeat_limit / SECOND + 1,
            threads=threads,
        )
        spans = None
        try:
            await _bring_up_to_date(broker, settings, wanted)
            spans = tracing.open_tracer(os.environ, broker.clock)
            if spans is not None:
                broker.trace_with(spans)
            broker.start()
            more = spans.metrics if spans is not None else tuple
            await _serve(settings, broker, keys, bound, stopping, parent, announce, more)
        finally:
            await broker.close()
            if spans is not None:
                await broker.threads.run(spans.close)
    log.info("The gateway has stopped")


def namespace_rules(keys: KeyFile, settings: Settings) -> Callable[[], Sequence[AuthorizationRule]]:
    """Return a function that returns the namespace's current authorization rules."""
    known = (EMULATOR_RULE,) if settings.emulator else ()
    return lambda: (*keys.rules(), *known)


def _open_engine(settings: Settings) -> Engine:
    return Engine.files(Folders(settings.data), settings.shards, duplicates_kept=settings.drop_record)


async def _bring_up_to_date(broker: Broker, settings: Settings, wanted: Sequence[EntityFile]) -> None:
    """Apply the tier of the settings and the entities of the files to the catalogue."""
    namespace = broker.catalogue.namespace
    if namespace.name != settings.namespace:
        raise GatewayError(
            f"Setting 'namespace' has value '{settings.namespace}', but data folder '{settings.data}' belongs to the "
            f"namespace '{namespace.name}'. Change the setting, or use another data folder."
        )
    tier = Tier(settings.tier or namespace.tier)
    if namespace.tier is not tier:
        await broker.change(lambda catalogue, _: catalogue.change_tier(tier))
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
    announce: Callable[[str, str], None],
    more_metrics: Callable[[], Iterable[Metric]],
) -> None:
    url = bound.url(settings)
    rules = namespace_rules(keys, settings)
    allowed = limits_of_this_process()
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
    tasks: list[asyncio.Task[None]] = []
    try:
        write_addresses(settings.data, url, ClientAddress.of(settings, bound.client_port))
        if settings.emulator and not is_this_machine(settings.host):
            log.warning(
                "The emulator's key is public: everyone who can reach %s can read, send and delete messages",
                settings.host,
            )
        log.info("The gateway is listening", extra={"fields": {"url": url, **bound.ports}})
        announce("open", url)
        tasks.append(asyncio.create_task(_announce_when_ready(broker, url, announce)))
        if parent is not None:
            tasks.append(asyncio.create_task(_watch(parent, stopping)))
        await stopping.wait()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        forget_addresses(settings.data)
        await asyncio.gather(http.stop(), amqp.stop())
        if signing_keys is not None:
            await signing_keys.stop()


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


async def _watch(parent: int, stopping: asyncio.Event) -> None:
    """Set `stopping` when the process `parent`, which started this one, has ended."""
    while os.getppid() == parent:
        await asyncio.sleep(LOOK_SECONDS)
    log.warning("Stopping, because the process that started the gateway has ended")
    stopping.set()


async def _announce_when_ready(broker: Broker, url: str, announce: Callable[[str, str], None]) -> None:
    while True:
        try:
            await broker.pipeline.probe()
            break
        except OncebusError as error:
            log.error("The inbox cannot be written: %s", error)
            await asyncio.sleep(RETRY_SECONDS)
    announce("ready", url)
