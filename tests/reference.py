"""States the rules of duplicate detection as plainly as possible. Every other implementation is compared with it."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import NamedTuple


class Message(NamedTuple):
    """A row. Its place decides between equal times; without one, its sequence number does."""

    key: str | None
    time: int
    sequence: int
    window: int
    place: int | None = None

    @property
    def rank(self) -> tuple[int, int]:
        return self.time, self.sequence if self.place is None else self.place


class Forget(Message):
    """Not a message: from here on, its key is new again."""


class Verdict(NamedTuple):
    is_duplicate: bool
    original_time: int | None = None
    original_sequence: int | None = None


@dataclass
class Reference:
    lateness: int = 0
    keeps_last: bool = False
    extends: bool = False
    horizon: int | None = None
    remembered: list[Message] = field(default_factory=list)
    accepted: list[Message] = field(default_factory=list)

    def aside(self) -> Reference:
        """Return the state that a batch beside the stream sees: everything accepted before it begins."""
        return replace(deepcopy(self), accepted=[])

    def join(self, aside: Reference, since: int) -> bool:
        """Add an aside between two batches. Refuse it if stream and aside have both accepted a key meanwhile.

        `since` is how many rows the stream had accepted when the aside began.
        """
        if any(self._original(message, aside.accepted) for message in self.accepted[since:]):
            return False
        self.remembered += [message for message in aside.accepted if message.key is not None]
        self.horizon = max((time for time in (self.horizon, aside.horizon) if time is not None), default=None)
        return True

    def remembered_now(self) -> list[Message]:
        """Return what the next batch remembers."""
        if self.horizon is None:
            return []
        return [m for m in self.remembered if self.horizon < m.time + m.window + self.lateness]

    def batch(self, messages: Sequence[Message], clock: int) -> dict[Message, Verdict]:
        self.remembered = self.remembered_now()
        earlier, accepted = list(self.remembered), list[Message]()
        verdicts = {}
        for message in sorted(messages, key=lambda m: m.rank, reverse=self.keeps_last):
            original = self._original(message, earlier) or self._original(message, accepted, last=self.keeps_last)
            verdicts[message] = Verdict(True, original.time, original.sequence) if original else Verdict(False)
            if isinstance(message, Forget):
                earlier = [m for m in earlier if m.key != message.key]
                accepted = [m for m in accepted if m.key != message.key]
            elif not original or (self.extends and message.key is not None):
                accepted.append(message)
        self.accepted += accepted
        self.remembered = earlier + [message for message in accepted if message.key is not None]
        if messages:
            seen = min(max(message.time for message in messages), clock)
            self.horizon = max(seen, seen if self.horizon is None else self.horizon)
        return verdicts

    def seed(self, messages: Sequence[Message], clock: int) -> tuple[int, int]:
        """Remember a table as if it had been checked. Return how many of its rows are remembered now, and were new."""
        known = len(self.accepted)
        self.batch(messages, clock)
        added = [message for message in self.accepted[known:] if message.key is not None]
        return sum(message in added for message in self.remembered_now()), len(added)

    def _original(self, message: Message, accepted: Sequence[Message], *, last: bool = False) -> Message | None:
        near = [
            m
            for m in accepted
            if m.key is not None and m.key == message.key and abs(message.time - m.time) < min(message.window, m.window)
        ]
        return (max if last else min)(near, key=lambda m: m.rank, default=None)


def counted(
    detection_key: str, message_id: str | None, properties: dict[str, str | int | bytes], body: bytes
) -> object | None:
    """Return what detection compares under a detection key; None if the message is never a duplicate."""
    if detection_key == "messageId":
        return message_id or None
    if detection_key == "body":
        return body or None
    value = properties.get(detection_key.removeprefix("property:"))
    return str(value) if isinstance(value, int) else value or None
