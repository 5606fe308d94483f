"""Paths of entities as people type them: `topic/name` for `topic/Subscriptions/name`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar
from urllib.parse import quote

from oncebus.programs.cli.client import Client, NotAnswered

T = TypeVar("T")


def below(entity: str, rest: str) -> str:
    """Return the HTTP path of something below an entity."""
    return f"/{quote(entity.strip('/'), safe='/$~')}/{rest}"


def subscription_path(entity: str) -> str | None:
    """Return the path of the subscription that `topic/name` may mean; None if it can mean none."""
    topic, _, name = entity.strip("/").rpartition("/")
    parts = topic.lower().split("/")
    return f"{topic}/Subscriptions/{name}" if topic and name and "subscriptions" not in parts else None


def at_entity(entity: str, ask: Callable[[str], T]) -> tuple[str, T]:
    """Return the path of an entity and what `ask` returns for it. If there is no such entity, try a subscription.

    `ask` must change nothing if it raises `NotAnswered` with status 404.
    """
    try:
        return entity, ask(entity)
    except NotAnswered as error:
        meant = subscription_path(entity)
        if error.status != 404 or meant is None:
            raise
        try:
            return meant, ask(meant)
        except NotAnswered:
            raise error from None


def no_such_target(client: Client, entity: str, error: NotAnswered) -> NotAnswered:
    """Return the error for a send to an entity that does not exist. It says so if it is a subscription."""
    meant = subscription_path(entity)
    if error.status != 404 or meant is None:
        return error
    try:
        client.ask("GET", below(meant, "$messages?count=1"))
    except NotAnswered:
        return error
    topic = meant.rpartition("/Subscriptions/")[0]
    return NotAnswered(f"'{entity}' is a subscription. Send to its topic '{topic}'.", error.status)
