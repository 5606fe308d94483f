"""How many connections the process can hold: by the descriptors that the system allows it."""

from __future__ import annotations

import logging
import resource
from typing import NamedTuple

from oncebus.http.server import MOST_CONNECTIONS as MOST_HTTP
from oncebus.servicebus.limits import Limits

log = logging.getLogger(__name__)

RESERVED_DESCRIPTORS = 256
"""For files, the store, the pipeline and what is accepted before it is counted."""
LEAST_CONNECTIONS = 8
"""Of each sort, however few descriptors there are."""


class Shares(NamedTuple):
    """How many connections of each sort there may be."""

    connections: int
    strangers: int
    http: int


def allow_descriptors() -> int:
    """Raise the soft limit of open files to the hard one, and return how many there may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = RESERVED_DESCRIPTORS + sum(_WANTED)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    return wanted if soft == resource.RLIM_INFINITY else soft


def shares(descriptors: int) -> Shares:
    """The connections that so many descriptors allow: as many as usual, or the same shares of what there is."""
    left = max(descriptors - RESERVED_DESCRIPTORS, 0)
    wanted = sum(_WANTED)
    if left >= wanted:
        return _WANTED
    return Shares(*(max(LEAST_CONNECTIONS, each * left // wanted) for each in _WANTED))


def shares_of_this_process() -> Shares:
    """The connections that this process can hold, once it has all the descriptors that it may have."""
    found = allow_descriptors()
    given = shares(found)
    if given != _WANTED:
        log.warning(
            "With %d descriptors there can be %d AMQP connections and %d of HTTP, not %d and %d. Raise the hard limit "
            "(ulimit -Hn) to %d.",
            found,
            given.connections,
            given.http,
            _WANTED.connections,
            _WANTED.http,
            RESERVED_DESCRIPTORS + sum(_WANTED),
        )
    return given


_USUAL = Limits()
_WANTED = Shares(_USUAL.connections, _USUAL.strangers, MOST_HTTP)
