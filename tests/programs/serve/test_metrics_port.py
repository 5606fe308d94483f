"""The port for metrics: no key, this machine alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx

from oncebus.programs.serve.metrics_port import serve_metrics
from oncebus.values.settings import Settings
from tests.broker.in_process import running_broker


async def answers(data: Path, settings: Settings, *requests: tuple[str, dict[str, str]]) -> list[httpx.Response]:
    async with (
        running_broker(data) as broker,
        serve_metrics(settings, broker, tuple) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        return [await client.get(path, headers=headers) for path, headers in requests]


def test_metrics_and_health_need_no_key(tmp_path: Path) -> None:
    metrics, health, other = asyncio.run(
        answers(tmp_path, Settings(metrics_port=0), ("/metrics", {}), ("/health", {}), ("/orders/messages/head", {}))
    )
    assert (metrics.status_code, metrics.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert "oncebus_healthy 1.0" in metrics.text.splitlines()
    assert health.json() == {"status": "healthy", "message": "Service is healthy."}
    assert other.status_code == 404


def test_a_web_page_of_another_host_cannot_read_them(tmp_path: Path) -> None:
    by_name, by_page = asyncio.run(
        answers(
            tmp_path,
            Settings(metrics_port=0),
            ("/metrics", {"host": "rebound.example.com"}),
            ("/metrics", {"origin": "https://rebound.example.com"}),
        )
    )
    assert (by_name.status_code, by_page.status_code) == (421, 421)


def test_without_the_setting_there_is_no_port(tmp_path: Path) -> None:
    async def port() -> int | None:
        async with running_broker(tmp_path) as broker, serve_metrics(Settings(), broker, tuple) as found:
            return found

    assert asyncio.run(port()) is None
