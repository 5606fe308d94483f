"""The port of `metrics_port`: metrics and health for this machine, without a key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

from prometheus_client import Metric
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from oncebus.broker.broker import Broker
from oncebus.programs.serve.app import OnlyKnownHosts
from oncebus.protocols.http import listen, server
from oncebus.protocols.http.paths import HEALTH
from oncebus.protocols.monitoring.health import HEALTHY, Health
from oncebus.protocols.monitoring.metrics import CONTENT_TYPE, metrics
from oncebus.protocols.portal.hosts import Hosts
from oncebus.values.settings import Settings, flag

HOST = "127.0.0.1"
MOST_CONNECTIONS = 20
"""A scraper has one; each request reads all entities."""


@asynccontextmanager
async def serve_metrics(
    settings: Settings, broker: Broker, others: Callable[[], Iterable[Metric]]
) -> AsyncIterator[int | None]:
    """Serve metrics for the block, if the settings want it, and yield the port. Raises `CannotListen`.

    Web pages of other hosts are refused: the port asks for no key.
    """
    if settings.metrics_port is None:
        yield None
        return
    health = Health(broker, lag=settings.lag_limit, heartbeat=settings.heartbeat_limit)

    async def all_metrics(_: Request) -> Response:
        return Response(await metrics(broker, health, others()), media_type=CONTENT_TYPE)

    async def state(_: Request) -> Response:
        problem = health.problem()
        body = {"status": "healthy" if problem is None else "unhealthy", "message": problem or HEALTHY}
        return JSONResponse(body, 200 if problem is None else 503)

    app = Starlette(routes=[Route("/metrics", all_metrics), Route(HEALTH.decode(), state)])
    app.add_middleware(OnlyKnownHosts, foreign=Hosts().foreign)
    running = server(app, listen(HOST, settings.metrics_port, flag("metrics_port")), most_connections=MOST_CONNECTIONS)
    await running.start()
    try:
        yield running.port
    finally:
        await running.stop()
