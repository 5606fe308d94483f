"""Defines the errors of the connector. Each message is one line, and none contains a secret."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from oncebus.values.errors import OncebusError

_HIDES = "SPARK_HIDE_TRACEBACK"


class BadOption(OncebusError, ValueError):
    """An option is missing, unknown or has a wrong value."""


class BadColumn(OncebusError, ValueError):
    """A DataFrame has a column that a message does not have, or a column of a wrong type."""


class BadRow(OncebusError, ValueError):
    """A row cannot become a message."""


class EqualRows(OncebusError):
    """Rows of different partitions are equal, so they got the same message id."""


class BadSpool(OncebusError):
    """The spool is used by another query, or is not the one that the checkpoint needs."""


class ServiceBusFailure(OncebusError):
    """Service Bus refused an operation, or stayed away for too long."""


class NotAllowed(ServiceBusFailure):
    """Service Bus refused an operation that the entity does not allow, such as a batch for several partitions."""


class TooLarge(ServiceBusFailure):
    """Service Bus refused a message or a batch because of its size."""


@contextmanager
def one_line() -> Iterator[None]:
    """Let Spark show an error of ours without the traceback of its Python process. Use it where Spark calls us.

    Spark looks at the variable when it reports an exception, and then ends the process. So no other error is affected.
    """
    try:
        yield
    except OncebusError:
        os.environ[_HIDES] = "1"
        raise
