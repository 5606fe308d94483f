"""One run: a service, its clients, faults, and a final phase that receives everything. The result is a history."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

from tests.programs.serve.programs import until

from . import faults, operations
from .amqp_client import recorded
from .clients import PlannedClient, receive_by_number
from .entities import DEAD_LETTERS, PLACES, SESSION, SESSIONS, SINKS
from .history import History, Recorder, Refused, Unanswered, read
from .http_client import HttpClient, letters_of
from .operations import AMQP, COMPLETE, HTTP
from .service import Service, serving

_PATIENCE = 120.0
_DRAIN_SECONDS = 120.0
_STATES = (
    "active",
    "scheduled",
    "deferred",
    "dead_letter",
    "transfer",
    "transfer_dead_letter",
    "entity_pipeline_bytes",
)


@dataclass
class Ran:
    """The result of a run: its history and its file, the output of the service, and the faults that hit something."""

    history: History
    path: Path
    output: str
    hit: Counter[str] = field(default_factory=Counter)


def run(folder: Path, seed: int, asked: str) -> Ran:
    """Run the plans of a seed while the given faults happen, then receive all remaining messages."""
    path = folder / f"history-{seed}.jsonl"
    hit: Counter[str] = Counter()
    with path.open("w", buffering=1) as file:
        recorder = Recorder(file.write, seed, asked)
        with serving(folder) as service:
            with _clients(service, recorder, seed):
                # Let the first messages through before the first fault.
                time.sleep(1.0)
                for fault in faults.plan(seed, asked):
                    faults.wait_for(fault, service)
                    args = {"fault": fault.kind, "seconds": fault.seconds, "size": fault.size}
                    with recorder.operation("faults", "fault", **args) as answer:
                        answer.result["hit"] = faults.inject(fault, service)
                    hit[fault.kind] += bool(answer.result["hit"])
                until(service.http.is_healthy, "the service is healthy after all faults", limit=_PATIENCE)
                time.sleep(1.0)
            _drain(service, recorder)
            _look(service.http, recorder)
            output = service.output()
    with path.open() as lines:
        return Ran(read(lines), path, output, hit)


@contextmanager
def _clients(service: Service, recorder: Recorder, seed: int) -> Iterator[None]:
    """Yield all clients, and close them after the block."""
    ended = Event()
    opened = {name: (service.client_of_amqp(), service.client_of_http()) for name in operations.CLIENTS}
    threads = []
    for name, (amqp, http) in opened.items():
        client = PlannedClient(name, recorder, amqp, http, ended)
        threads.append(Thread(target=client.run, args=(operations.plan(seed, name),), name=name, daemon=True))
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join(_PATIENCE)
        for amqp, _ in opened.values():
            amqp.close()
    stuck = [thread.name for thread in threads if thread.is_alive()]
    assert not stuck, f"clients still wait for an answer: {stuck}"


def _held(http: HttpClient) -> dict[str, dict[str, int]]:
    """Return the number of remaining messages by entity and state."""
    found: dict[str, dict[str, int]] = {}
    for entity, values in http.metrics().items():
        kept = {name: values[name] for name in _STATES if values.get(name)}
        if kept:
            found[entity] = kept
    return found


def _drain(service: Service, recorder: Recorder) -> None:
    """Receive and complete until no messages remain, or nothing changes for a while. The checker reports the rest."""
    http, amqp = service.http, service.client_of_amqp()
    deadline = time.monotonic() + _DRAIN_SECONDS
    before: dict[str, dict[str, int]] = {}
    try:
        while time.monotonic() < deadline:
            try:
                held = _held(http)
            except (Refused, Unanswered):
                time.sleep(0.5)
                continue
            if not held:
                return
            if held != before:
                deadline, before = time.monotonic() + _DRAIN_SECONDS, held
            for place in PLACES:
                if place not in held:
                    continue
                if place != SESSION:
                    _drain_place(http, recorder, place, place)
                else:
                    for session in SESSIONS:
                        _drain_session(service, recorder, session)
                _drain_place(http, recorder, place + DEAD_LETTERS, letters_of(place))
                if held[place].get("deferred"):
                    for each in http.look(place):
                        if each["state"] == "Deferred":
                            receive_by_number(recorder, "drain", amqp, place, each["session"], each["number"])
            time.sleep(0.2)
    finally:
        amqp.close()


def _drain_place(http: HttpClient, recorder: Recorder, place: str, path: str) -> None:
    while True:
        found = None
        with recorder.operation("drain", "receive", place=place, session=None, via=HTTP, most=1) as answer:
            found = http.receive(path, 0)
            answer.result["messages"] = [] if found is None else [found[0]]
        if found is None:
            return
        message, where = found
        args = {"place": place, "uid": message["uid"], "number": message["number"], "action": COMPLETE}
        with recorder.operation("drain", "settle", **args):
            http.settle(where, COMPLETE)


def _drain_session(service: Service, recorder: Recorder, session: str) -> None:
    client = service.client_of_amqp()
    with client.receiving(SESSION, session) as link:
        args = {"place": SESSION, "session": session, "via": AMQP, "most": 50}
        messages = []
        with recorder.operation("drain", "receive", **args) as answer:
            messages = link.receive(50, 0.5)
            answer.result["messages"] = [recorded(each) for each in messages]
        for message in messages:
            found = recorded(message)
            done = {"place": SESSION, "uid": found["uid"], "number": found["number"], "action": COMPLETE}
            with recorder.operation("drain", "settle", **done):
                link.settle(message, COMPLETE)
    client.close()


def _look(http: HttpClient, recorder: Recorder) -> None:
    """Record the broker's own counters and records at the end."""
    with recorder.operation("drain", "end") as answer:
        answer.result["metrics"] = http.metrics()
        answer.result["held"] = _held(http)
        detecting = [sink.name for sink in SINKS.values() if sink.detects] + ["target"]
        answer.result["drops"] = {name: http.drops(name) for name in detecting}
