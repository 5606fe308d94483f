"""Reads the options of `format("servicebus")`.

Spark gives every option as text, under a name in lower case. An unknown name is an error: a misspelled option would
otherwise be ignored without a word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

from oncebus.connector.endpoints import Access, access_from
from oncebus.connector.errors import BadOption
from oncebus.values.durations import BadDuration, checked_duration, parse_duration, spelt_out
from oncebus.values.errors import clip
from oncebus.values.sizes import MIB, parse_size, utf16_length

T = TypeVar("T")
LONGEST_PREFIX = 64


class Use(StrEnum):
    """What a DataFrame does with Service Bus."""

    WRITE = "write"
    READ = "read"
    STREAM = "readStream"


class Option(NamedTuple):
    """An option as the reference documents it. `default` is None if there is none."""

    name: str
    uses: tuple[Use, ...]
    default: str | None


_ALL = (Use.WRITE, Use.READ, Use.STREAM)
_READS = (Use.READ, Use.STREAM)

OPTIONS = (
    Option("connection_string", _ALL, None),
    Option("connection_string_env", _ALL, None),
    Option("connection_string_file", _ALL, None),
    Option("namespace", _ALL, None),
    Option("credential", _ALL, None),
    Option("queue", _ALL, None),
    Option("topic", _ALL, None),
    Option("retry_timeout", _ALL, "5 minutes"),
    Option("id_prefix", (Use.WRITE,), None),
    Option("detection", (Use.WRITE,), "require"),
    Option("administration_url", (Use.WRITE,), None),
    Option("subscription", _READS, None),
    Option("sub_queue", _READS, None),
    Option("max_rows", _READS, "10000"),
    Option("max_bytes", (Use.STREAM,), "64 MiB"),
    Option("spool", (Use.STREAM,), None),
    Option("mode", (Use.STREAM,), "peek_lock"),
    Option("sessions", (Use.STREAM,), "false"),
    Option("receivers", (Use.STREAM,), "1"),
    Option("partitions", (Use.STREAM,), "2"),
    Option("wait", (Use.STREAM,), "1 second"),
)
_DEFAULTS = {option.name: option.default for option in OPTIONS}

# Such as s3://bucket/a, dbfs:/a or file:/a. As a path, it would be a folder below the working directory.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
# Spark hands the options of the query itself to its sink, and may do so for a source.
_OF_SPARK = ("checkpointlocation", "asyncprogresstracking", "spark.", "_")


@dataclass(frozen=True, slots=True)
class Entity:
    """The queue, topic or subscription of a DataFrame. `subscription` is set only for a topic that is read."""

    name: str
    is_topic: bool = False
    subscription: str | None = None
    sub_queue: str | None = None

    def receiver(self, client: Any, **arguments: Any) -> Any:
        """Return a receiver of the official client for it, which has the client's kind: of threads or of asyncio."""
        arguments["sub_queue"] = None if self.sub_queue is None else self.sub_queue.replace("_", "")
        if self.subscription is None:
            return client.get_queue_receiver(self.name, **arguments)
        return client.get_subscription_receiver(self.name, self.subscription, **arguments)

    def __str__(self) -> str:
        if not self.is_topic:
            text = f"queue '{self.name}'"
        elif self.subscription is None:
            text = f"topic '{self.name}'"
        else:
            text = f"subscription '{self.name}/{self.subscription}'"
        return text if self.sub_queue is None else f"the {self.sub_queue.replace('_', '-')} queue of {text}"


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of a DataFrame that is written. Durations are seconds."""

    access: Access
    entity: Entity
    retry_timeout: float
    id_prefix: str | None
    requires_detection: bool
    administration_url: str | None


@dataclass(frozen=True, slots=True)
class PeekOptions:
    """The options of a batch that is read."""

    access: Access
    entity: Entity
    retry_timeout: float
    max_rows: int


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of a stream that is read. Durations are seconds."""

    access: Access
    entity: Entity
    retry_timeout: float
    spool: str
    deletes: bool
    sessions: bool
    receivers: int
    partitions: int
    max_rows: int
    max_bytes: int
    wait: float


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Return the options of a DataFrame that is written. Raises `BadOption`."""
    options = _Options(given, Use.WRITE)
    prefix = options.text("id_prefix")
    if prefix is not None and utf16_length(prefix) > LONGEST_PREFIX:
        raise BadOption(f"Option 'id_prefix' {clip(prefix)} is longer than {LONGEST_PREFIX} characters.")
    return SinkOptions(
        access=access_from(options.values),
        entity=_entity(options),
        retry_timeout=options.seconds("retry_timeout"),
        id_prefix=prefix,
        requires_detection=options.one_of("detection", ("require", "ignore")) == "require",
        administration_url=options.text("administration_url"),
    )


def peek_options(given: Mapping[str, str]) -> PeekOptions:
    """Return the options of a batch that is read. Raises `BadOption`."""
    options = _Options(given, Use.READ)
    return PeekOptions(
        access=access_from(options.values),
        entity=_entity(options),
        retry_timeout=options.seconds("retry_timeout"),
        max_rows=options.number("max_rows", 10_000_000),
    )


def stream_options(given: Mapping[str, str]) -> StreamOptions:
    """Return the options of a stream that is read. Raises `BadOption`."""
    options = _Options(given, Use.STREAM)
    spool = options.text("spool")
    if spool is None:
        raise BadOption(
            "Option 'spool' is missing: a folder in which the stream keeps received messages until Spark has committed "
            "them. On a cluster, all machines must share it."
        )
    if _SCHEME.match(spool):
        raise BadOption(f"Option 'spool' {clip(spool)} must be the path of a folder, not an address.")
    deletes = options.one_of("mode", ("peek_lock", "receive_and_delete")) == "receive_and_delete"
    sessions = options.one_of("sessions", ("true", "false")) == "true"
    if deletes and sessions:
        # A link leaves its session after each micro-batch. The messages that are under way then would be lost.
        raise BadOption("The mode 'receive_and_delete' cannot be combined with sessions: use 'peek_lock'.")
    entity = _entity(options)
    if sessions and entity.sub_queue is not None:
        raise BadOption(f"Option 'sessions' cannot be true for {entity}: it has no sessions.")
    return StreamOptions(
        access=access_from(options.values),
        entity=entity,
        retry_timeout=options.seconds("retry_timeout"),
        spool=spool,
        deletes=deletes,
        sessions=sessions,
        receivers=options.number("receivers", 64),
        partitions=options.number("partitions", 1000),
        max_rows=options.number("max_rows", 1_000_000),
        max_bytes=options.size("max_bytes", 1024 * MIB),
        # Locks are not renewed while a link waits.
        wait=options.seconds("wait", 10),
    )


class _Options:
    """The given options of one use, with the defaults of the others."""

    def __init__(self, given: Mapping[str, str], use: Use) -> None:
        known = {option.name: option for option in OPTIONS}
        for name in given:
            if name.lower().startswith(_OF_SPARK):
                continue
            option = known.get(name.lower())
            if option is None:
                raise BadOption(f"Unknown option {clip(name)}. There are: {', '.join(sorted(known))}.")
            if use not in option.uses:
                uses = " and ".join(option.uses)
                raise BadOption(f"Option '{option.name}' is for {uses}, not for {use}.")
        self.use = use
        self.values = {name.lower(): value for name, value in given.items()}

    def text(self, name: str) -> str | None:
        value = self.values.get(name, _DEFAULTS[name])
        if value is not None and not value.strip():
            raise BadOption(f"Option '{name}' is empty.")
        return value

    def one_of(self, name: str, allowed: tuple[str, ...]) -> str:
        value = (self.text(name) or "").lower()
        if value not in allowed:
            raise BadOption(f"Option '{name}' {clip(value)} must be one of: {', '.join(allowed)}.")
        return value

    def number(self, name: str, most: int) -> int:
        value = self._parse(name, int, "a whole number")
        if not 1 <= value <= most:
            raise BadOption(f"Option '{name}' {value} must be between 1 and {most}.")
        return value

    def size(self, name: str, most: int) -> int:
        value = self._parse(name, parse_size, "a size such as '64 MiB'")
        if value > most:
            raise BadOption(f"Option '{name}' {clip(self.text(name))} must be at most {most} bytes.")
        return value

    def seconds(self, name: str, most: float = 86400) -> float:
        text = self.text(name) or ""
        try:
            seconds = checked_duration(parse_duration(spelt_out(text), name, text), text, name) / 1e6
        except BadDuration as error:
            raise BadOption(f"Option {error}") from None
        if seconds > most:
            raise BadOption(f"Option '{name}' {clip(text)} must be at most {most:.0f} seconds.")
        return seconds

    def _parse(self, name: str, parse: Callable[[str], T], wanted: str) -> T:
        text = self.text(name) or ""
        try:
            return parse(text)
        except ValueError:
            raise BadOption(f"Option '{name}' {clip(text)} must be {wanted}.") from None


def _entity(options: _Options) -> Entity:
    queue, topic = options.text("queue"), options.text("topic")
    if (queue is None) == (topic is None):
        raise BadOption("Give either the option 'queue' or the option 'topic'.")
    if queue is not None:
        if "subscription" in options.values:
            raise BadOption("Option 'subscription' needs the option 'topic', not 'queue'.")
        return Entity(queue, sub_queue=_sub_queue(options))
    assert topic is not None
    if options.use is Use.WRITE:
        return Entity(topic, is_topic=True)
    subscription = options.text("subscription")
    if subscription is None:
        raise BadOption(f"Option 'subscription' is missing: the subscription of topic {clip(topic)} to read.")
    return Entity(topic, is_topic=True, subscription=subscription, sub_queue=_sub_queue(options))


def _sub_queue(options: _Options) -> str | None:
    given = options.use is not Use.WRITE and options.text("sub_queue") is not None
    return options.one_of("sub_queue", ("dead_letter", "transfer_dead_letter")) if given else None
