"""The gateway process: runs the broker and its protocols until it is asked to stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import Metric

from oncebus.broker.broker import Broker
from oncebus.engine.engine import Engine
from oncebus.engine.folders import Folders
from oncebus.model.access import KeyFile
from oncebus.model.entities import Catalogue, Namespace, Tier
from oncebus.programs.serve.addresses import ClientAddress, Sockets, forget_addresses, write_addresses
from oncebus.programs.serve.certificate import with_certificate
from oncebus.programs.serve.descriptors import limits_of_this_process
from oncebus.programs.serve.servers import namespace_rules, open_servers
from oncebus.programs.serve.start_files import files_at_start
from oncebus.protocols.http.front import Reset
from oncebus.protocols.monitoring import tracing
from oncebus.values.durations import SECOND
from oncebus.values.errors import OncebusError
from oncebus.values.hosts import is_this_machine
from oncebus.values.locks import is_locked
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
        namespace_rules(keys, settings)
        threads = Threads()
        broker = await Broker.open(
            await threads.run(_open_engine, settings),
            namespace=Namespace(settings.namespace, Tier(settings.tier or Tier.STANDARD), settings.longest_window),
            most_bytes=settings.inbox_limit,
            # Starts unhealthy, until something has come out of the pipeline.
            silent_for=settings.heartbeat_limit / SECOND + 1,
            threads=threads,
        )
        broker.pipeline.is_running = partial(is_locked, Folders(settings.data).pipeline_lock)
        spans = None
        try:
            await _bring_up_to_date(broker, settings, wanted)
            spans = tracing.open_tracer(os.environ, broker.clock)
            if spans is not None:
                broker.trace_with(spans)
            broker.start()
            more = spans.metrics if spans is not None else tuple
            reset = partial(start_over, broker, wanted) if settings.emulator or settings.ephemeral else None
            await _serve(settings, broker, keys, bound, stopping, parent, announce, more, reset)
        finally:
            await broker.close()
            if spans is not None:
                await broker.threads.run(spans.close)
    log.info("The gateway has stopped")


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


async def start_over(broker: Broker, wanted: Sequence[EntityFile]) -> None:
    """Forget all entities, with their messages and the ids they remember, and create those of the files again."""

    def change(catalogue: Catalogue, now: int) -> Catalogue:
        catalogue = catalogue.clear()
        for file in wanted:
            catalogue = file.added_to(catalogue, now)
        return catalogue

    await broker.change(change)


async def _serve(
    settings: Settings,
    broker: Broker,
    keys: KeyFile,
    bound: Sockets,
    stopping: asyncio.Event,
    parent: int | None,
    announce: Callable[[str, str], None],
    more_metrics: Callable[[], Iterable[Metric]],
    reset: Reset | None,
) -> None:
    url = bound.url(settings)
    allowed = limits_of_this_process()
    async with open_servers(settings, broker, keys, bound, allowed, more_metrics=more_metrics, reset=reset) as servers:
        tasks: list[asyncio.Task[None]] = []
        try:
            write_addresses(settings.data, url, ClientAddress.of(settings, bound.client_port))
            if settings.emulator and not is_this_machine(settings.host):
                log.warning(
                    "The emulator's key is public: everyone who can reach %s can read, send and delete messages",
                    settings.host,
                )
            log.info("The gateway is listening", extra={"fields": {"url": url, **bound.ports, **servers.ports}})
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
