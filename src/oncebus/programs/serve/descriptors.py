"""Limits the number of connections to what the process's file descriptors allow."""

from __future__ import annotations

import logging
import resource
from typing import NamedTuple

from oncebus.protocols.http.server import MOST_CONNECTIONS as MOST_HTTP
from oncebus.protocols.servicebus.limits import AmqpLimits

log = logging.getLogger(__name__)

RESERVED_DESCRIPTORS = 256
"""Descriptors reserved for files, the store, the pipeline, and connections that are accepted but not counted yet."""
LEAST_CONNECTIONS = 8
"""The minimum number of connections of each kind, however few descriptors there are."""


class ConnectionLimits(NamedTuple):
    """The largest number of connections of each kind."""

    connections: int
    strangers: int
    http: int


def allow_descriptors() -> int:
    """Raise the soft limit of open files as far as needed and allowed. Return the number of usable descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = RESERVED_DESCRIPTORS + sum(_WANTED)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    return wanted if soft == resource.RLIM_INFINITY else soft


def connection_limits(descriptors: int) -> ConnectionLimits:
    """Return the limits for a number of descriptors: the usual ones, or all reduced in the same proportion."""
    left = max(descriptors - RESERVED_DESCRIPTORS, 0)
    wanted = sum(_WANTED)
    if left >= wanted:
        return _WANTED
    return ConnectionLimits(*(max(LEAST_CONNECTIONS, each * left // wanted) for each in _WANTED))


def limits_of_this_process() -> ConnectionLimits:
    """Raise this process's limit of open files, and return the connection limits. Logs a warning if they are low."""
    found = allow_descriptors()
    given = connection_limits(found)
    if given != _WANTED:
        log.warning(
            "%d file descriptors allow only %d AMQP and %d HTTP connections instead of %d and %d. Raise the hard limit "
            "(ulimit -Hn) to %d.",
            found,
            given.connections,
            given.http,
            _WANTED.connections,
            _WANTED.http,
            RESERVED_DESCRIPTORS + sum(_WANTED),
        )
    return given


_USUAL = AmqpLimits()
_WANTED = ConnectionLimits(_USUAL.connections, _USUAL.strangers, MOST_HTTP)
