"""The inbox: a log of accepted messages that the gateway appends to and Spark reads."""

from oncebus.inbox.body_files import BodyFiles
from oncebus.inbox.errors import InboxDamaged, InboxError, InboxFull, InboxInUse, RowsRefused
from oncebus.inbox.marks import Marks
from oncebus.inbox.reader import Commit, InboxReader
from oncebus.inbox.rows import ROW_SCHEMA, Row
from oncebus.inbox.segment import Place
from oncebus.inbox.writer import InboxWriter

__all__ = [
    "ROW_SCHEMA",
    "BodyFiles",
    "Commit",
    "InboxDamaged",
    "InboxError",
    "InboxFull",
    "InboxInUse",
    "InboxReader",
    "InboxWriter",
    "Marks",
    "Place",
    "Row",
    "RowsRefused",
]
