"""Sends the submissions of all senders to the broker together, over whatever protocol and connection they come.

Most senders await each answer, so each brings one message at a time. All messages that arrive for one entity in one
turn of the event loop become one call of the broker, because checking, stamping and answering cost less together.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from oncebus.broker.background import Background
from oncebus.broker.clock import ClockLeapt
from oncebus.broker.errors import BrokerClosed, ServerBusy
from oncebus.broker.sending import MOST_MESSAGES, Incoming
from oncebus.engine.inbox import InboxError, RowsRefused
from oncebus.model.entities import EntityDisabled, NotFound

D = TypeVar("D")

_FOR_ALL = (BrokerClosed, ClockLeapt, InboxError, NotFound, EntityDisabled, ServerBusy)


class Submission(NamedTuple, Generic[D]):
    """A delivery of a protocol with its messages, which are accepted together or not at all. `size` is that of all."""

    delivery: D
    messages: Sequence[Incoming]
    size: int


class Submitter(Protocol[D]):
    """A sender of a protocol."""

    @property
    def path(self) -> str:
        """The address of the entity."""

    @property
    def largest(self) -> int:
        """The largest size of messages that are sent together."""

    def read(self, delivery: D) -> Submission[D] | None:
        """Return a delivery with its messages. A malformed one is refused, and None returned."""

    def accept(self, deliveries: Sequence[D]) -> None:
        """Answer deliveries whose messages are durable."""

    def refuse(self, deliveries: Sequence[D], error: Exception) -> None:
        """Answer deliveries that the broker refuses."""


class SubmissionQueue(Generic[D]):
    """The deliveries of one sender, which are sent in their order.

    Those that have to wait, or that come with a bad one, are sent apart: by a task of the sender's own. As long as it
    runs, later ones wait for it.
    """

    def __init__(self, coalescer: Coalescer, sender: Submitter[D]) -> None:
        self.sender = sender
        self.is_apart = False
        # For the task: deliveries that are read, and later ones.
        self.waiting: deque[D] = deque()
        self._apart: list[Submission[D]] = []
        self._coalescer = coalescer

    def add(self, delivery: D) -> None:
        """Send a delivery soon, after all earlier ones."""
        self._coalescer.add(self, delivery)

    def read(self, delivery: D) -> Submission[D] | None:
        """Return a delivery with its messages; None if it is malformed, or waits for those that are sent apart."""
        if self.is_apart:
            self.waiting.append(delivery)
            return None
        return self.sender.read(delivery)

    def send_apart(self, submissions: Sequence[Submission[D]]) -> None:
        """Send submissions in calls of their own, before all later ones: they have to wait, or some of them are bad."""
        self._apart += submissions
        if not self.is_apart:
            self.is_apart = True
            self._coalescer.background.start(self._send_apart())

    async def _send_apart(self) -> None:
        try:
            while self._apart or self.waiting:
                for group in self._groups():
                    await self._send(group)
        finally:
            self.is_apart = False

    def _groups(self) -> list[list[Submission[D]]]:
        """Return the submissions for the task in order, in groups no larger than the largest batch."""
        submissions, self._apart = self._apart, []
        while self.waiting:
            submission = self.sender.read(self.waiting.popleft())
            if submission is not None:
                submissions.append(submission)
        groups: list[list[Submission[D]]] = []
        size = count = 0
        for submission in submissions:
            size, count = size + submission.size, count + len(submission.messages)
            if not groups or size > self.sender.largest or count > MOST_MESSAGES:
                groups.append([])
                size, count = submission.size, len(submission.messages)
            groups[-1].append(submission)
        return groups

    async def _send(self, group: list[Submission[D]]) -> None:
        """Send a group in one call. If it is refused, try its halves, so that only the bad submissions are rejected."""
        messages = [message for submission in group for message in submission.messages]
        try:
            await self._coalescer.send(self.sender.path, messages)
        except Exception as error:
            if len(group) == 1 or _is_for_all(error):
                self.sender.refuse([submission.delivery for submission in group], error)
                return
            middle = len(group) // 2
            await self._send(group[:middle])
            await self._send(group[middle:])
            return
        self.sender.accept([submission.delivery for submission in group])


class _Group:
    """Transfers for one entity: one call of the broker. `of` are the submissions by sender, in their order."""

    __slots__ = ("messages", "of", "path", "size")

    def __init__(self, path: str) -> None:
        self.path = path
        self.messages: list[Incoming] = []
        self.size = 0
        self.of: dict[SubmissionQueue[Any], list[Submission[Any]]] = {}

    def add(self, queue: SubmissionQueue[D], submission: Submission[D]) -> None:
        self.messages += submission.messages
        self.size += submission.size
        of_sender = self.of.get(queue)
        if of_sender is None:
            self.of[queue] = [submission]
        else:
            of_sender.append(submission)


class Coalescer:
    """Collects the deliveries of one turn of the event loop, and sends those for one entity together.

    `accept` and `send` are those of the broker.
    """

    def __init__(
        self,
        accept: Callable[[str, Sequence[Incoming], int, Callable[[Exception | None], None]], bool],
        send: Callable[[str, Sequence[Incoming]], Awaitable[object]],
        background: Background,
    ) -> None:
        self.send = send
        self.background = background
        self._accept = accept
        self._arrived: list[tuple[SubmissionQueue[Any], Any]] = []

    def add(self, queue: SubmissionQueue[D], delivery: D) -> None:
        """Send a delivery soon, after all earlier ones of its sender."""
        if not self._arrived:
            asyncio.get_running_loop().call_soon(self._send_all)
        self._arrived.append((queue, delivery))

    def _send_all(self) -> None:
        arrived, self._arrived = self._arrived, []
        groups: dict[str, _Group] = {}
        for queue, delivery in arrived:
            submission = queue.read(delivery)
            if submission is None:
                continue
            sender = queue.sender
            path = sender.path
            group = groups.get(path)
            if group is None:
                group = groups[path] = _Group(path)
            elif (
                group.size + submission.size > sender.largest
                or len(group.messages) + len(submission.messages) > MOST_MESSAGES
            ):
                self._send(group)
                del groups[path]
                if queue.is_apart:
                    # The group that was just sent holds earlier submissions of this sender. Do not overtake them.
                    queue.send_apart([submission])
                    continue
                group = groups[path] = _Group(path)
            group.add(queue, submission)
        for group in groups.values():
            self._send(group)

    def _send(self, group: _Group) -> None:
        answer = partial(_answer, group)
        try:
            is_begun = self._accept(group.path, group.messages, len(group.of), answer)
        except Exception as error:
            answer(error)
        else:
            if not is_begun:
                for queue, submissions in group.of.items():
                    queue.send_apart(submissions)


def _answer(group: _Group, error: Exception | None) -> None:
    is_final = _is_for_all(error) or (len(group.of) == 1 and all(len(it) == 1 for it in group.of.values()))
    for queue, submissions in group.of.items():
        if error is None:
            queue.sender.accept([submission.delivery for submission in submissions])
        elif is_final:
            queue.sender.refuse([submission.delivery for submission in submissions], error)
        else:
            # Only some of the submissions may be bad: each sender finds out which of its own.
            queue.send_apart(submissions)


def _is_for_all(error: Exception | None) -> bool:
    """Return whether an error does not depend on the messages, so that all other submissions would fail too.

    Transfers that fail so are refused, not sent again: later submissions of their sender may be on their way already.
    """
    return isinstance(error, _FOR_ALL) and not isinstance(error, RowsRefused)
