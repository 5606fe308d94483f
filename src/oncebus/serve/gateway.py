"""The gateway as a process: the broker, its keys and its protocols, until it is asked to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from starlette.applications import Starlette

from oncebus.access import EMULATOR_RULE, AuthorizationRule, KeyFile
from oncebus.broker.broker import Broker
from oncebus.broker.core import Core
from oncebus.durations import SECOND
from oncebus.entities import Namespace, Tier
from oncebus.errors import OncebusError
from oncebus.folders import Folders
from oncebus.http import HttpServer, Limits, Tls, listen, make_app, server
from oncebus.inbox import Row
from oncebus.messages import NOBODY
from oncebus.serve.addresses import forget_url, url_of, write_url
from oncebus.serve.entities_file import EntitiesFile
from oncebus.settings import Settings

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
RETRY_SECONDS = 0.5


class GatewayError(OncebusError):
    """The gateway cannot run with these settings."""


async def run_gateway(
    settings: Settings,
    *,
    entities: Path | None = None,
    listening: socket.socket | None = None,
    parent: int | None = None,
    tell: Callable[[str, str], None] = lambda what, url: None,  # noqa: ARG005
) -> None:
    """Serve until SIGTERM or SIGINT, or until the process `parent` is gone.

    `tell` is called with "open" once requests are answered, and with "ready" once a row that was appended after that
    has come out of the pipeline; both times with the address.
    """
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    check_supported(settings)
    wanted = EntitiesFile.read(entities) if entities is not None else None
    keys = KeyFile(settings.key_path)
    with contextlib.closing(listening or listen(settings.host, settings.http_port)) as bound:
        keys.create()
        keys.rules()
        core = await Core.open(
            Folders(settings.data),
            shards=settings.shards,
            namespace=Namespace(settings.namespace, Tier(settings.tier)),
            most_bytes=settings.inbox_limit,
            drops_kept=settings.drop_record,
        )
        try:
            # Not healthy before something has come through.
            core.last_taken_at = time.monotonic() - settings.heartbeat_limit / SECOND - 1
            broker = Broker(core)
            await _bring_up_to_date(broker, settings, wanted)
            core.start()
            await _serve(settings, broker, core, keys, bound, stopping, parent, tell)
        finally:
            await core.close()
    log.info("The gateway has stopped")


def check_supported(settings: Settings) -> None:
    """Refuse what can be set and is not there yet."""
    if settings.config is not None:
        raise GatewayError("Setting 'config' is not supported yet. Give --entities instead.")


def namespace_rules(keys: KeyFile, settings: Settings) -> Callable[[], Sequence[AuthorizationRule]]:
    """The rules of the namespace, as they are whenever it is called."""
    known = (EMULATOR_RULE,) if settings.emulator else ()
    return lambda: (*keys.rules(), *known)


async def _bring_up_to_date(broker: Broker, settings: Settings, wanted: EntitiesFile | None) -> None:
    """Make the catalogue what the settings and the entities file ask for."""
    namespace = broker.catalogue.namespace
    if namespace.name != settings.namespace:
        raise GatewayError(
            f"Setting 'namespace' has value '{settings.namespace}', but data folder '{settings.data}' is of the "
            f"namespace '{namespace.name}'. Set it to that."
        )
    tier = Tier(settings.tier)
    if namespace.tier is not tier:
        await broker.change(lambda catalogue, _: catalogue.at_tier(tier))
    if wanted is not None and wanted.added_to(broker.catalogue, 0) is not broker.catalogue:
        await broker.change(wanted.added_to)


async def _serve(
    settings: Settings,
    broker: Broker,
    core: Core,
    keys: KeyFile,
    bound: socket.socket,
    stopping: asyncio.Event,
    parent: int | None,
    tell: Callable[[str, str], None],
) -> None:
    url = url_of(settings, bound)
    app = make_app(
        broker,
        core,
        namespace_rules=namespace_rules(keys, settings),
        limits=Limits(lag=settings.lag_limit, heartbeat=settings.heartbeat_limit),
    )
    http = _server_at(app, bound, settings)
    await http.start()
    write_url(settings.data, url)
    log.info("The gateway listens", extra={"fields": {"url": url}})
    tell("open", url)
    tasks = [asyncio.create_task(_tell_when_ready(core, url, tell))]
    if parent is not None:
        tasks.append(asyncio.create_task(_watch(parent, stopping)))
    try:
        await stopping.wait()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        forget_url(settings.data)
        await http.stop()


def _server_at(app: Starlette, bound: socket.socket, settings: Settings) -> HttpServer:
    """The server at a socket that is there already, perhaps since an earlier gateway."""
    tls = None
    if settings.tls_cert is not None and settings.tls_key is not None:
        tls = Tls(settings.tls_cert, settings.tls_key)
    return server(app, bound, tls)


async def _watch(parent: int, stopping: asyncio.Event) -> None:
    """Stop when the process that started us is gone."""
    while os.getppid() == parent:
        await asyncio.sleep(LOOK_SECONDS)
    log.warning("The process that started the gateway is gone; it ends too")
    stopping.set()


async def _tell_when_ready(core: Core, url: str, tell: Callable[[str, str], None]) -> None:
    row = Row(
        entity=NOBODY,
        sequence=0,
        time=core.clock.last,
        window=0,
        message_id="",
        hops=0,
        size=0,
        head=b"",
        body=b"",
    )
    while True:
        try:
            commit = await core.append(NOBODY, [row])
            break
        except OncebusError as error:
            log.error("The inbox takes nothing: %s", error)
            await asyncio.sleep(RETRY_SECONDS)
    while not await core.progress.wait_for(commit, 60.0):
        pass
    tell("ready", url)
