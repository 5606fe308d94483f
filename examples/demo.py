"""Sends 10,000 messages with the official Azure client, 1,000 of them with a repeated id, and receives 9,000 in order.

Starts `oncebus serve` over a temporary data folder and free ports, and stops it at the end, or at Ctrl-C with `--keep`.
Prints throughput and latency, or an error if a message is missing, doubled or out of order.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from oncebus.broker.clock import wall_time
from oncebus.model.access import KeyFile, make_token
from oncebus.values.durations import HOUR

MESSAGES = 10_000
REPEATS = 1_000
SENDERS = 4
RECEIVERS = 3
BATCH = 100
ALONE = 100
"""The number of messages to send one at a time at the end, to measure the latency of an idle broker."""

START_SECONDS = 180.0
IDLE_SECONDS = 2
SILENCE_SECONDS = 20.0
QUEUE = "orders"
ENTITIES = [
    {
        "type": "queue",
        "name": QUEUE,
        "requiresDuplicateDetection": True,
        "duplicateDetectionHistoryTimeWindow": "PT10M",
    }
]
READY = re.compile(r"^Oncebus is ready: (\S+)$", re.MULTILINE)
CONNECTION = re.compile(r"Endpoint=sb://\S+")

console = Console(highlight=False)


class Failed(Exception):
    """The broker did not start, or a result is wrong."""


@dataclass
class Seen:
    """The progress of each sender, the (sequence number, id, body) that each receiver got, and the record of drops."""

    accepted: list[int] = field(default_factory=lambda: [0] * SENDERS)
    sent_until: list[float] = field(default_factory=lambda: [0.0] * SENDERS)
    received_until: float = 0.0
    received: list[list[tuple[int, str, str]]] = field(default_factory=lambda: [[] for _ in range(RECEIVERS)])
    drops: list[dict[str, Any]] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Return the number of received messages."""
        return sum(map(len, self.received))


def plan(sender: int) -> list[tuple[str, str]]:
    """Return the (id, body) of each message of a sender. One in ten repeats an earlier id with another body."""
    chance = random.Random(sender)
    count, repeats = MESSAGES // SENDERS, REPEATS // SENDERS
    repeated = set(chance.sample(range(BATCH, count), repeats))
    ids: list[str] = []
    planned = []
    for at in range(count):
        if at in repeated:
            planned.append((chance.choice(ids), f"{sender}:{at}"))
        else:
            ids.append(f"order-{sender}-{at}")
            planned.append((ids[-1], f"{sender}:{at}"))
    return planned


def send(connection: str, number: int, seen: Seen) -> None:
    """Send batches, each as soon as the previous one is accepted."""
    planned = plan(number)
    with ServiceBusClient.from_connection_string(connection) as client, client.get_queue_sender(QUEUE) as sender:
        for at in range(0, len(planned), BATCH):
            batch = planned[at : at + BATCH]
            sender.send_messages([ServiceBusMessage(body, message_id=identity) for identity, body in batch])
            seen.accepted[number] += len(batch)
        seen.sent_until[number] = time.monotonic()


def receive(connection: str, number: int, seen: Seen) -> None:
    """Receive and complete messages until all expected ones are there, or until no more come."""
    with (
        ServiceBusClient.from_connection_string(connection) as client,
        client.get_queue_receiver(QUEUE, prefetch_count=100, max_wait_time=IDLE_SECONDS) as receiver,
    ):
        silent_since = time.monotonic()
        while seen.count < MESSAGES - REPEATS and time.monotonic() - silent_since < SILENCE_SECONDS:
            for message in receiver:
                receiver.complete_message(message)
                seen.received[number].append((message.sequence_number or 0, message.message_id or "", str(message)))
                silent_since = seen.received_until = time.monotonic()


def follow_drops(url: str, token: str, seen: Seen, ended: threading.Event) -> None:
    """Read the record of drops as it grows, and the rest of it after `ended` is set."""
    while True:
        is_last = ended.wait(0.5)
        after = seen.drops[-1]["record"] if seen.drops else 0
        request = Request(f"{url}/{QUEUE}/$duplicates?limit=1000&after={after}", headers={"Authorization": token})
        with urlopen(request, timeout=60) as answer:
            page = json.load(answer)["duplicates"]
        seen.drops += page
        if is_last and not page:
            return


def latencies_alone(connection: str) -> list[float]:
    """Send messages one at a time, and return the seconds from before each send to after its receive."""
    found = []
    with (
        ServiceBusClient.from_connection_string(connection) as client,
        client.get_queue_sender(QUEUE) as sender,
        client.get_queue_receiver(QUEUE) as receiver,
    ):
        for at in range(ALONE):
            began = time.monotonic()
            sender.send_messages(ServiceBusMessage("alone", message_id=f"alone-{at}"))
            taken = receiver.receive_messages(max_wait_time=SILENCE_SECONDS)
            found.append(time.monotonic() - began)
            if [message.message_id for message in taken] != [f"alone-{at}"]:
                raise Failed(f"Message alone-{at} was sent, but {len(taken)} other messages were received.")
            receiver.complete_message(taken[0])
    return found


def is_any_left(connection: str) -> bool:
    """Return whether there is another message in the queue."""
    with ServiceBusClient.from_connection_string(connection) as client, client.get_queue_receiver(QUEUE) as receiver:
        return bool(receiver.receive_messages(max_wait_time=1))


def show_progress(seen: Seen, ended: threading.Event) -> None:
    """Show three progress bars until `ended` is set."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        sent = progress.add_task("sent", total=MESSAGES)
        received = progress.add_task("received", total=MESSAGES - REPEATS)
        dropped = progress.add_task("dropped as duplicates", total=REPEATS)
        while True:
            is_last = ended.wait(0.1)
            progress.update(sent, completed=sum(seen.accepted))
            progress.update(received, completed=seen.count)
            progress.update(dropped, completed=len(seen.drops))
            if is_last:
                return


def run(connection: str, url: str, token: str) -> Seen:
    """Send, receive and follow the drops at the same time."""
    seen = Seen()
    done, shown = threading.Event(), threading.Event()
    with ThreadPoolExecutor(SENDERS + RECEIVERS + 2) as threads:
        display = threads.submit(show_progress, seen, shown)
        drops = threads.submit(follow_drops, url, token, seen, done)
        receivers = [threads.submit(receive, connection, number, seen) for number in range(RECEIVERS)]
        senders = [threads.submit(send, connection, number, seen) for number in range(SENDERS)]
        try:
            for future in (*senders, *receivers):
                future.result()
            done.set()
            drops.result()
        finally:
            done.set()
            shown.set()
            display.result()
    return seen


def check(seen: Seen, *, is_more: bool) -> None:
    """Raise `Failed` unless the right messages arrived in order, and each other one was dropped with its original."""
    expected_bodies: set[str] = set()
    repeated: list[str] = []
    for sender in range(SENDERS):
        known: set[str] = set()
        for identity, body in plan(sender):
            if identity in known:
                repeated.append(identity)
            else:
                known.add(identity)
                expected_bodies.add(body)
    arrived = sorted(message for messages in seen.received for message in messages)
    if len(arrived) != len(expected_bodies) or {body for _, _, body in arrived} != expected_bodies:
        raise Failed(f"{len(arrived):,} messages were received, not the expected {MESSAGES - REPEATS:,}.")
    if is_more:
        raise Failed("There are more messages in the queue than expected.")
    if any(messages != sorted(messages) for messages in seen.received):
        raise Failed("A receiver got a message before another one that was accepted earlier.")
    for sender in range(SENDERS):
        order = [int(body.partition(":")[2]) for _, _, body in arrived if body.startswith(f"{sender}:")]
        if order != sorted(order):
            raise Failed(f"The messages of sender {sender} are not in the order in which they were sent.")
    if sorted(drop["messageId"] for drop in seen.drops) != sorted(repeated):
        raise Failed(f"The record of drops has {len(seen.drops):,} entries, not the expected {len(repeated):,}.")
    number_of = {identity: number for number, identity, _ in arrived}
    for drop in seen.drops:
        if drop["original"]["sequenceNumber"] != number_of[drop["messageId"]]:
            raise Failed(f"The original of duplicate {drop['messageId']} was not delivered.")


def show_results(seen: Seen, started: float, alone: list[float]) -> None:
    """Print some of the drops, the throughput and the latency."""
    table = Table(title="The first dropped duplicates", title_justify="left")
    for name in ("message id", "sequence number", "original's sequence number", "seconds since the original"):
        table.add_column(name)
    for drop in seen.drops[:5]:
        original = drop["original"]
        apart = seconds_between(original["time"], drop["time"])
        row = (drop["messageId"], str(drop["sequenceNumber"]), str(original["sequenceNumber"]), f"{apart:.1f}")
        table.add_row(*row)
    console.print(table)
    console.print(f"{seen.count:,} messages received, each once, in order; {len(seen.drops):,} dropped.")
    sent = MESSAGES / (max(seen.sent_until) - started)
    received = seen.count / (seen.received_until - started)
    console.print(
        f"Throughput: [bold]{sent:,.0f} messages/s[/] sent, [bold]{received:,.0f} messages/s[/] received and completed."
    )
    cuts = statistics.quantiles(alone, n=100)
    console.print(
        "Latency of a message on an idle broker, from before the send to after the receive: "
        f"[bold]p50 {1000 * cuts[49]:,.0f} ms, p99 {1000 * cuts[98]:,.0f} ms[/]."
    )


def seconds_between(earlier: str, later: str) -> float:
    """Return the seconds between two times of the record of drops."""
    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()


@contextmanager
def broker(folder: Path) -> Iterator[tuple[str, str]]:
    """Run a broker for a block, and yield its connection string and its URL."""
    entities = folder / "entities.json"
    entities.write_text(json.dumps(ENTITIES))
    words = ["serve", "--data", str(folder / "data"), "--http-port", "0", "--amqp-port", "0"]
    console.print("$ oncebus " + " ".join([*words, "--entities", "entities.json"]), soft_wrap=True)
    words += ["--entities", str(entities), "--print-connection-string"]
    out, err = folder / "out", folder / "err"
    with out.open("w") as said, err.open("w") as logged:
        process = subprocess.Popen(
            [sys.executable, "-m", "oncebus.programs.cli", *words], stdout=said, stderr=logged, start_new_session=True
        )
    try:
        started = time.monotonic()
        with console.status("Starting Spark"):
            while not (found := READY.search(out.read_text())):
                if process.poll() is not None or time.monotonic() - started > START_SECONDS:
                    raise Failed(f"The broker did not start:\n{err.read_text()}")
                time.sleep(0.05)
        console.print(f"Oncebus is ready: {found[1]} (after {time.monotonic() - started:.1f} s)")
        connection = CONNECTION.search(out.read_text())
        if connection is None:
            raise Failed(f"The broker printed no connection string:\n{out.read_text()}")
        yield connection[0], found[1]
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    console.print("Oncebus has stopped.")


def keep_running(connection: str, url: str) -> None:
    """Leave the broker running until Ctrl-C."""
    console.print(f"The broker keeps running. Sign in at [bold]{url}/[/] with its connection string:")
    console.print(connection, soft_wrap=True)
    console.print("Ctrl-C stops it and deletes its data.")
    with suppress(KeyboardInterrupt):
        threading.Event().wait()


def demonstrate(folder: Path, *, keep: bool) -> None:
    """Run the whole demonstration."""
    with broker(folder) as (connection, url):
        console.print(f"The portal: [bold]{url}/[/]")
        rule = KeyFile(folder / "data" / "keys.json").rules()[0]
        token = make_token(url, rule.name, rule.primary_key, wall_time() + HOUR)
        console.print(
            f"{SENDERS} senders of azure-servicebus {version('azure-servicebus')} send {MESSAGES:,} messages in "
            f"batches of {BATCH} to the queue '{QUEUE}', which detects duplicates; {REPEATS:,} of them repeat an id. "
            f"{RECEIVERS} receivers receive and complete them."
        )
        started = time.monotonic()
        seen = run(connection, url, token)
        check(seen, is_more=is_any_left(connection))
        show_results(seen, started, latencies_alone(connection))
        if keep:
            keep_running(connection, url)


def main() -> None:
    """Run the demonstration and clean up. The exit code is 1 if it failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="store_true", help="leave the broker running until Ctrl-C")
    keep = parser.parse_args().keep
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with tempfile.TemporaryDirectory(prefix="oncebus-demo-", ignore_cleanup_errors=True) as name:
            demonstrate(Path(name), keep=keep)
    except Failed as error:
        console.print(f"[red]Failed:[/] {error}")
        sys.exit(1)


if __name__ == "__main__":
    main()
