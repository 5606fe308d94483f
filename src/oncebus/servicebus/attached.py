"""What a link of the client is attached to, and the connection as its links see it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Generic, Protocol, TypeVar

from oncebus.access.scopes import Path
from oncebus.amqp.events import Disposed
from oncebus.amqp.incoming import Delivery
from oncebus.amqp.link import Link
from oncebus.servicebus.addresses import Node
from oncebus.servicebus.credentials import Credentials
from oncebus.servicebus.front import Front

L = TypeVar("L", bound=Link)


class Client(Protocol):
    """The connection, as its links see it."""

    front: Front
    credentials: Credentials

    @property
    def links(self) -> Collection[Attached[Any]]:
        """All links."""

    def flush(self) -> None:
        """Have what was said on a link written."""

    def hold(self, size: int) -> None:
        """So many bytes more, or less, of this client are under way. With too many it is not read for a while."""

    def end(self, attached: Attached[Any], error: Exception) -> None:
        """Refuse or detach a link, for this reason."""

    def look_at(self, attached: Attached[Any], time: int) -> None:
        """A link is to be checked at this time."""


class Attached(Generic[L]):
    """One end of a link. The connection calls these methods in the order of the client's frames."""

    is_accepted = False
    """Whether the attach has been answered."""
    held_by: Path | None = None
    """The path of the token that permits the link; None where it needs none."""
    due: int | None = None
    """When the connection will check it, where it has asked for that."""

    def __init__(self, client: Client, link: L, node: Node) -> None:
        self.client = client
        self.front = client.front
        self.link = link
        self.node = node

    def open(self) -> None:
        """Answer the attach, now or later. What is raised refuses the link."""
        raise NotImplementedError

    def delivered(self, delivery: Delivery) -> None:
        """The client has sent something."""

    def credit_changed(self) -> None:
        """The client wants more, or less, or to be drained."""

    def disposed(self, event: Disposed) -> None:
        """The client says what became of what it was sent."""

    def check(self) -> None:
        """Raise if the link may not go on: the entity or the token is not what it was."""

    def ended(self) -> None:
        """The link is over."""
