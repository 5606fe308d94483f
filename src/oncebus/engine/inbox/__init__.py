"""The inbox: a log of accepted messages that the gateway appends to and Spark reads."""

from oncebus.engine.inbox.body_files import BodyFiles
from oncebus.engine.inbox.errors import InboxDamaged, InboxError, InboxFull, InboxInUse, RowsRefused
from oncebus.engine.inbox.marks import Marks
from oncebus.engine.inbox.reader import Commit, InboxReader
from oncebus.engine.inbox.rows import Row
from oncebus.engine.inbox.segment import Place
from oncebus.engine.inbox.writer import InboxWriter

__all__ = [
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
