"""Clients that follow their plans and record their requests and the answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from threading import Event
from typing import Any

from azure.servicebus import ServiceBusReceivedMessage

from .amqp_client import AmqpClient, Link, recorded
from .deals import Locked, dealing
from .entities import DEAD_LETTERS, LOCK_SECONDS, SINKS, WINDOW
from .history import FAILED, UNKNOWN, Answer, Recorder, Refused, Unanswered
from .http_client import HttpClient, letters_of
from .operations import (
    AMQP,
    COMPLETE,
    DEFER,
    HTTP,
    Cancel,
    ChangeRule,
    ChangeWindow,
    Forget,
    Message,
    Pause,
    Receive,
    ReceiveDeferred,
    Recreate,
    Resubmit,
    Send,
    Step,
    Transact,
)

_ATTEMPTS = 4
_WAIT = 0.5
_LOCKED = {"LockDuration": f"PT{LOCK_SECONDS}S", "MaxDeliveryCount": 1000}
Received = Sequence[tuple[dict[str, Any], ServiceBusReceivedMessage]]
Messages = tuple[Message, ...]


class PlannedClient:
    """A client that does one step after another until it is stopped. A failed step is recorded and not repeated."""

    def __init__(self, name: str, recorder: Recorder, amqp: AmqpClient, http: HttpClient, ended: Event) -> None:
        self._name, self._recorder = name, recorder
        self._amqp, self._http, self._ended = amqp, http, ended
        self._scheduled: list[tuple[str, str, int]] = []
        self._deferred: list[tuple[str, str | None, int]] = []
        self._window = SINKS[WINDOW].window
        self._incarnation = 0
        self._copied = 0

    def run(self, steps: Iterator[Step]) -> None:
        for step in steps:
            if self._ended.is_set():
                return
            self._do(step)

    def _do(self, step: Step) -> None:
        match step:
            case Pause(seconds):
                self._ended.wait(seconds)
            case Send():
                self._retry(step.messages, lambda messages: self._send_once(step.entity, messages, step.via).outcome)
            case Transact():
                self._retry(step.messages, lambda messages: self._transact(step, messages))
            case Receive(place, via, actions, session):
                if via == HTTP:
                    self._receive_one_by_one(place, actions)
                else:
                    self._receive(place, session, actions)
            case Cancel(pick):
                self._cancel(pick)
            case ReceiveDeferred(pick):
                self._receive_deferred(pick)
            case Resubmit(place, copies):
                if copies:
                    self._resubmit_copies(place)
                else:
                    self._resubmit(place)
            case ChangeWindow(entity, window):
                self._until_known(
                    "window", lambda: self._http.change_window(entity, window, **_LOCKED), entity=entity, window=window
                )
            case Forget(entity, name):
                self._forget(entity, name)
            case ChangeRule(place, colour):
                self._until_known("rule", lambda: self._http.change_rule(place, colour), place=place, colour=colour)
            case Recreate(entity):
                self._recreate(entity)

    @contextmanager
    def _recorded(self, kind: str, **args: Any) -> Iterator[Answer]:
        with self._recorder.operation(self._name, kind, **args) as answer:
            yield answer

    # Sending

    def _retry(self, messages: Messages, send: Callable[[Messages], str]) -> None:
        """Send until the outcome is known, or the run ends."""
        for attempt in range(_ATTEMPTS):
            if attempt:
                # A retry as real clients make it, with the same ids, but here with new uids.
                messages = tuple(replace(each, uid=f"{each.uid}~") for each in messages)
            if send(messages) != UNKNOWN or self._ended.wait(0.1):
                return

    def _args_of_send(self, entity: str, messages: Messages, via: str, now: float) -> dict[str, Any]:
        return {
            "entity": entity,
            "via": via,
            "incarnation": self._incarnation if entity == "recreated" else 0,
            "messages": [
                {
                    "uid": each.uid,
                    "id": each.id,
                    "colour": each.colour,
                    "session": each.session,
                    "due": None if each.due is None else round((now + each.due) * 1e6),
                }
                for each in messages
            ],
        }

    def _send_once(self, entity: str, messages: Messages, via: str) -> Answer:
        with self._recorded("send", **self._args_of_send(entity, messages, via, time.time())) as answer:
            numbers = None
            if via == AMQP:
                numbers = self._amqp.send(entity, messages)
            else:
                self._http.send(entity, messages)
            if numbers is not None:
                answer.result["numbers"] = numbers
                self._scheduled.append((entity, messages[0].uid, numbers[0]))
        return answer

    def _transact(self, step: Transact, messages: Messages) -> str:
        """Do everything in a transaction and return its outcome. Without a discharge nothing of it takes effect."""
        now, locked, numbers = time.time(), list[Locked](), list[int | None]()
        since, problem = self._recorder.now(), None
        with ExitStack() as stack:
            try:
                deal = stack.enter_context(dealing(self._amqp.string, step.entity))
                if step.settles:
                    args = {"place": step.entity, "session": None, "via": AMQP, "most": step.settles}
                    with self._recorded("receive", **args) as received:
                        locked = deal.receive(step.settles, _WAIT)
                        received.result["messages"] = [each.record for each in locked]
                for each in locked:
                    deal.complete_by_token(each, "any") if step.by_token else deal.complete(each)
                numbers = [deal.add(each, None if each.due is None else now + each.due) for each in messages]
                if step.rival is not None and step.commits:
                    rival = replace(step.rival, uid=messages[0].uid + "!")
                    self._send_once(step.entity, (rival,), AMQP)
            except (Refused, Unanswered, OSError) as error:
                problem = Refused(f"not discharged: {error}")
            deals = {"settles": len(locked), "since": since}
            operations = [
                ("send", {**self._args_of_send(step.entity, messages, "transaction", now), **deals}),
                *(
                    ("settle", {"place": step.entity, **_which(each.record), "action": COMPLETE, **deals})
                    for each in locked
                ),
            ]
            with self._recorder.together(self._name, operations) as answers:
                if problem is not None:
                    raise problem
                answers[0].result["numbers"] = numbers
                outside = [(each, step.outside) for each in locked if step.outside is not None]
                deal.discharge(
                    fail=not step.commits, outside=outside, settled=step.is_settled, first=step.is_outside_first
                )
                if not step.commits:
                    raise Refused("rolled back")
        if answers[0].is_ok:
            pairs = zip(messages, numbers, strict=True)
            self._scheduled += [(step.entity, each.uid, number) for each, number in pairs if number is not None]
        return answers[0].outcome

    def _cancel(self, pick: float) -> None:
        if not self._scheduled:
            return
        # The newest are the ones most likely not due yet.
        newest = self._scheduled[-3:]
        entity, uid, number = found = newest[min(int(pick * len(newest)), len(newest) - 1)]
        self._scheduled.remove(found)
        with self._recorded("cancel", entity=entity, uid=uid, number=number):
            self._amqp.cancel(entity, number)

    # Receiving

    def _receive(self, place: str, session: str | None, actions: Sequence[str]) -> None:
        with self._received(place, session, len(actions)) as (link, messages):
            for (found, message), action in zip(messages, actions, strict=False):
                self._settle(link, place, session, found, message, action)

    @contextmanager
    def _received(self, place: str, session: str | None, most: int) -> Iterator[tuple[Link, Received]]:
        with self._amqp.receiving(place, session) as link:
            messages: Received = []
            with self._recorded("receive", place=place, session=session, via=AMQP, most=most) as answer:
                messages = [(recorded(each), each) for each in link.receive(most, _WAIT)]
                answer.result["messages"] = [found for found, _ in messages]
            yield link, messages

    def _settle(
        self,
        link: Link,
        place: str,
        session: str | None,
        found: dict[str, Any],
        message: ServiceBusReceivedMessage,
        action: str,
    ) -> Answer:
        with self._recorded("settle", place=place, **_which(found), action=action) as answer:
            link.settle(message, action)
        if action == DEFER and answer.outcome != FAILED:
            self._deferred.append((place, session, found["number"]))
        return answer

    def _receive_one_by_one(self, place: str, actions: Sequence[str]) -> None:
        for action in actions:
            found = None
            with self._recorded("receive", place=place, session=None, via=HTTP, most=1) as answer:
                found = self._http.receive(place, 0 if action != actions[0] else _WAIT)
                answer.result["messages"] = [] if found is None else [found[0]]
            if found is None:
                return
            message, path = found
            args = {"place": place, "uid": message["uid"], "number": message["number"]}
            for each in (action, *([COMPLETE] if action == "renew" else [])):
                with self._recorded("settle", **args, action=each):
                    self._http.settle(path, each)

    def _receive_deferred(self, pick: float) -> None:
        if not self._deferred:
            return
        place, session, number = found = self._deferred[int(pick * len(self._deferred))]
        self._deferred.remove(found)
        receive_by_number(self._recorder, self._name, self._amqp, place, session, number)

    # Dead letters

    def _resubmit(self, place: str) -> None:
        letters: list[dict[str, Any]] = []
        with self._recorded("look", place=place + DEAD_LETTERS):
            letters = self._http.look(letters_of(place))[:3]
        if not letters:
            return
        numbers, uids = [each["number"] for each in letters], [each["uid"] for each in letters]
        with self._recorded("resubmit", place=place, numbers=numbers, uids=uids) as answer:
            answer.result["done"] = self._http.resubmit(place, numbers)

    def _resubmit_copies(self, place: str) -> None:
        if place not in SINKS:
            return
        letters = place + DEAD_LETTERS
        with self._received(letters, None, 3) as (link, messages):
            for found, message in messages:
                # A dead letter that is delivered again is copied again, with the same id.
                self._copied += 1
                uid = f"{found['uid']}+{self._name}.{self._copied}"
                copy = Message(uid, f"copy-{found['uid']}", "red", found["session"])
                if self._send_once(place, (copy,), HTTP).is_ok:
                    self._settle(link, letters, None, found, message, COMPLETE)

    # Entities

    def _forget(self, entity: str, name: str) -> None:
        with self._recorded("forget", entity=entity, id=name) as answer:
            answer.result["number"] = self._http.forget(entity, name)

    def _until_known(self, kind: str, do: Callable[[], None], **args: Any) -> bool:
        """Retry until it succeeds. Return False if the run ends first.

        Only this client changes the thing, so after a success its state is known."""
        while True:
            with self._recorded(kind, **args) as answer:
                do()
            if answer.is_ok:
                return True
            if self._ended.wait(0.2):
                return False

    def _recreate(self, entity: str) -> None:
        def delete() -> None:
            try:
                self._http.delete(entity)
            except Refused as error:
                # An earlier attempt that got no answer has deleted it.
                if not str(error).startswith("404"):
                    raise

        def create() -> None:
            try:
                self._http.create(entity, "P1D", **_LOCKED)
            except Refused as error:
                if not str(error).startswith("409"):
                    raise

        # Retry until both succeed, even after the run is over: its end needs all entities.
        self._incarnation += 1
        for kind, do in (("delete", delete), ("create", create)):
            while not self._until_known(kind, do, entity=entity, incarnation=self._incarnation):
                time.sleep(0.2)


def _which(record: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that identify a received message."""
    return {"uid": record["uid"], "number": record["number"]}


def receive_by_number(
    recorder: Recorder, name: str, amqp: AmqpClient, place: str, session: str | None, number: int
) -> None:
    """Receive a deferred message and complete it."""
    with amqp.receiving(place, session) as link:
        messages: list[ServiceBusReceivedMessage] = []
        args = {"place": place, "session": session, "via": AMQP, "most": 1, "deferred": number}
        with recorder.operation(name, "receive", **args) as answer:
            messages = link.receive_deferred(number)
            answer.result["messages"] = [recorded(each) for each in messages]
        for message in messages:
            found = recorded(message)
            args = {"place": place, "uid": found["uid"], "number": number, "action": COMPLETE}
            with recorder.operation(name, "settle", **args):
                link.settle(message, COMPLETE)
