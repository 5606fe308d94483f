"""Sends the transfers of all connections to the broker together.

Most senders await each answer, so each connection brings one message at a time. All messages
that arrive for one entity in one turn of the event loop, over any connection, become one call of the broker, because
checking, stamping and answering cost less together.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, Protocol

from oncebus.amqp.incoming import Delivery
from oncebus.broker.broker import Broker
from oncebus.broker.clock import ClockLeapt
from oncebus.broker.errors import BrokerClosed, ServerBusy
from oncebus.broker.sending import MOST_MESSAGES, Incoming
from oncebus.engine.inbox import InboxError, RowsRefused
from oncebus.model.entities import EntityDisabled, NotFound

log = logging.getLogger(__name__)

_FOR_ALL = (BrokerClosed, ClockLeapt, InboxError, NotFound, EntityDisabled, ServerBusy)


def is_for_all(error: Exception | None) -> bool:
    """Return whether an error does not depend on the messages, so that all other transfers would fail too.

    Transfers that fail so are refused, not sent again: later transfers of their sender may be on their way already.
    """
    return isinstance(error, _FOR_ALL) and not isinstance(error, RowsRefused)


class Sent(NamedTuple):
    """A transfer and its messages, which are accepted together or not at all. `size` is the size of all messages."""

    delivery: Delivery
    messages: Sequence[Incoming]
    size: int


class Sending(Protocol):
    """A sender whose transfers are sent together with those of others."""

    @property
    def path(self) -> str:
        """The address of the entity."""

    @property
    def largest(self) -> int:
        """The largest size of messages that are sent together."""

    @property
    def is_apart(self) -> bool:
        """Whether earlier transfers are being sent apart, so that later ones have to wait for them."""

    def read(self, delivery: Delivery) -> Sent | None:
        """Return a transfer with its messages. A malformed one is refused, and None returned."""

    def accepted(self, deliveries: Sequence[Delivery]) -> None:
        """Answer transfers whose messages are durable."""

    def refused(self, deliveries: Sequence[Delivery], error: Exception) -> None:
        """Answer transfers that the broker refuses."""

    def send_apart(self, transfers: Sequence[Sent]) -> None:
        """Send transfers in calls of their own, before all later ones: they have to wait, or some of them are bad."""


class _Group:
    """Transfers for one entity: one call of the broker. `of` are the transfers by sender, in their order."""

    __slots__ = ("messages", "of", "path", "size")

    def __init__(self, path: str) -> None:
        self.path = path
        self.messages: list[Incoming] = []
        self.size = 0
        self.of: dict[Sending, list[Sent]] = {}

    def add(self, sender: Sending, sent: Sent) -> None:
        self.messages += sent.messages
        self.size += sent.size
        of_sender = self.of.get(sender)
        if of_sender is None:
            self.of[sender] = [sent]
        else:
            of_sender.append(sent)


class Sends:
    """Collects the transfers of one turn of the event loop, and sends those for one entity together."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._arrived: list[tuple[Sending, Delivery]] = []

    def add(self, sender: Sending, delivery: Delivery) -> None:
        """Send a transfer soon, after all earlier ones of its sender."""
        if not self._arrived:
            asyncio.get_running_loop().call_soon(self._send_all)
        self._arrived.append((sender, delivery))

    def _send_all(self) -> None:
        arrived, self._arrived = self._arrived, []
        groups: dict[str, _Group] = {}
        for sender, delivery in arrived:
            sent = sender.read(delivery)
            if sent is None:
                continue
            path = sender.path
            group = groups.get(path)
            if group is None:
                group = groups[path] = _Group(path)
            elif group.size + sent.size > sender.largest or len(group.messages) + len(sent.messages) > MOST_MESSAGES:
                self._send(group)
                del groups[path]
                if sender.is_apart:
                    # The group that was just sent holds earlier transfers of this sender. Do not overtake them.
                    sender.send_apart([sent])
                    continue
                group = groups[path] = _Group(path)
            group.add(sender, sent)
        for group in groups.values():
            self._send(group)

    def _send(self, group: _Group) -> None:
        try:
            is_begun = self._broker.accept(group.path, group.messages, len(group.of), partial(self._answered, group))
        except Exception as error:
            self._answered(group, error)
        else:
            if not is_begun:
                for sender, transfers in group.of.items():
                    sender.send_apart(transfers)

    def _answered(self, group: _Group, error: Exception | None) -> None:
        is_final = is_for_all(error) or (len(group.of) == 1 and all(len(it) == 1 for it in group.of.values()))
        for sender, transfers in group.of.items():
            if error is None:
                sender.accepted([sent.delivery for sent in transfers])
            elif is_final:
                sender.refused([sent.delivery for sent in transfers], error)
            else:
                # Only some of the transfers may be bad: each sender finds out which of its own.
                sender.send_apart(transfers)
