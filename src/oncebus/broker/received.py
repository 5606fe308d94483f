"""Messages as they are handed out: with their whole bodies."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from oncebus.broker.bodies import Bodies
from oncebus.store import Message

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Received:
    """A message handed out, with its whole body."""

    message: Message
    body: bytes


async def with_bodies(messages: Sequence[Message], bodies: Bodies) -> list[Received]:
    """The messages with their bodies. One whose body cannot be read is left out: the others must not be lost.

    Where it was held it stays so until its lock ends, and is tried again then.
    """
    whole = []
    for message in messages:
        if message.blob is None:
            whole.append(Received(message, message.body or b""))
            continue
        try:
            body = await bodies.read(message.blob)
        except Exception as error:
            # Whatever it is: no memory or no thread for one is no reason to lose the others.
            log.error("Message %d of entity %d has no body: %s", message.sequence, message.entity, error)
        else:
            whole.append(Received(message, body))
    return whole
