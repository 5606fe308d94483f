"""Messages as receivers get them: with their whole bodies."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from oncebus.broker.bodies import Bodies
from oncebus.store import Message

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Received:
    """A delivered message with its whole body."""

    message: Message
    body: bytes


async def with_bodies(messages: Sequence[Message], bodies: Bodies) -> list[Received]:
    """Return the messages with their bodies, without those whose body cannot be read.

    A message that is left out and was locked stays locked until its lock expires, and is then delivered again.
    """
    whole = []
    for message in messages:
        if message.blob is None:
            whole.append(Received(message, message.body or b""))
            continue
        try:
            body = await bodies.read(message.blob)
        except Exception as error:
            # Any error: even no memory or no thread for one message is no reason to lose the others.
            log.error("Cannot read the body of message %d of entity %d: %s", message.sequence, message.entity, error)
        else:
            whole.append(Received(message, body))
    return whole
