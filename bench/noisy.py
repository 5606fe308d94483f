"""Runs `python -m bench.noisy`: measures how long the messages of a quiet queue take beside a noisy one.

Three clients in a separate process send batches of 100 to one queue over HTTP, as fast as they are answered. Meanwhile
another queue gets ten messages per second, which are received at once. Writes docs/bench/noisy.json and prints a table.
Set BENCH_SECONDS and BENCH_ROUNDS to change the measurement.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.broker import BODY, QUEUE, Running, message, running, shown
from oncebus.broker.addresses import Address
from oncebus.engine.store import Action, Settlement
from oncebus.model.access import Right, make_token
from oncebus.model.access.authorization_rule import fresh_rule
from oncebus.model.entities import Queue
from oncebus.programs.serve.app import make_app
from oncebus.programs.serve.gateway import SWITCH_SECONDS
from oncebus.protocols.http import listen, server

RESULTS = Path(__file__).parent.parent / "docs" / "bench" / "noisy.json"
SECONDS = float(os.environ.get("BENCH_SECONDS", "30"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
QUIET = Address("quiet")
EVERY_SECONDS = 0.1
SENDERS, BATCH = 3, 100


async def quiet_times(each: Running, until: float) -> list[float]:
    """Send to the quiet queue, and return the seconds from each send to its receipt."""
    broker, sent, found, is_over = each.broker, dict[str, float](), list[float](), False

    async def receiver() -> None:
        while not is_over or sent:
            for got in await broker.receive(QUIET, 100, wait=1.0):
                found.append(time.perf_counter() - sent.pop(got.message.message_id))
                await broker.settle(QUIET, [Settlement(Action.COMPLETE, got.message.token or b"")])

    receiving = asyncio.create_task(receiver())
    while time.perf_counter() < until:
        one = message()
        assert isinstance(one.message_id, str)
        sent[one.message_id] = time.perf_counter()
        await broker.send(QUIET.path, [one])
        await asyncio.sleep(EVERY_SECONDS)
    is_over = True
    await receiving
    return sorted(found)


async def measured(each: Running, *, is_noisy: bool) -> dict[str, float]:
    """Return the figures of one round. The noise starts before the first quiet message."""
    broker = each.broker
    rule = fresh_rule("bench", [Right.MANAGE])
    http = server(make_app(broker, namespace_rules=lambda: (rule,)), listen("127.0.0.1", 0))
    await http.start()
    address = f"http://127.0.0.1:{http.port}/"
    token = make_token(address, rule.name, rule.primary_key, broker.clock.now() + 3_600_000_000)
    load = None
    if is_noisy:
        load = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.http_load", str(http.port), QUEUE.path, str(SENDERS), str(BATCH)),
            *(str(SECONDS), str(len(BODY)), token),
            stdout=asyncio.subprocess.PIPE,
        )
        await asyncio.sleep(2)
    times = await quiet_times(each, time.perf_counter() + SECONDS - 4)
    lag = broker.pipeline.oldest_wait / 1e6
    noise = 0.0
    if load is not None:
        output, _ = await load.communicate()
        noise = float(output)
    await http.stop()
    await each.caught_up()
    names = {"p50": 0.5, "p99": 0.99}
    return {
        **{f"quiet queue, {name} s": times[int(len(times) * at)] for name, at in names.items()},
        "quiet queue, longest s": times[-1],
        "noisy queue, accepted/s": noise,
        "oldest message in the pipeline at the end, s": lag,
    }


async def rounds() -> dict[str, dict[str, list[float]]]:
    found: dict[str, dict[str, list[float]]] = {"quiet alone": {}, "beside the noisy one": {}}
    async with running("off", None) as each:
        quiet = Queue(name=QUIET.path)
        await each.broker.change(lambda catalogue, now: catalogue.create(quiet, now))
        for _ in range(ROUNDS):
            for case, is_noisy in (("quiet alone", False), ("beside the noisy one", True)):
                for name, figure in (await measured(each, is_noisy=is_noisy)).items():
                    found[case].setdefault(name, []).append(figure)
                    print(f"  {case}: {name}: {shown(figure)}", file=sys.stderr, flush=True)
    return found


def main() -> None:
    sys.setswitchinterval(SWITCH_SECONDS)
    found = asyncio.run(rounds())
    medians = {
        case: {name: statistics.median(each) for name, each in figures.items()} for case, figures in found.items()
    }
    RESULTS.write_text(json.dumps({"cores": os.cpu_count(), "rounds": found, "medians": medians}, indent=1) + "\n")
    table = Table("", *medians)
    for name in next(iter(medians.values())):
        table.add_row(name, *(shown(figures[name]) for figures in medians.values()))
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
