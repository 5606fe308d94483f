"""`ledger.json`: the key that a ledger is for, and the id that tells it from every other ledger.

    {"format": 2, "id": "3f…", "key": ["id string"]}

The writer that creates a ledger makes up the id and sends it to its tasks. A task that finds another id, or none, looks
at another folder under the same path: its machine does not share the folder. Format 1 had no id; the next writer makes
it format 2, which earlier versions of Oncebus refuse: they could not read the names of its runs.
"""

from __future__ import annotations

import json
import platform
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from oncebus.errors import OncebusError
from oncebus.files import TEMPORARY
from oncebus.ledger.storage import Storage

FORMAT = 2
_WITHOUT_ID = 1
FILE_NAME = "ledger.json"


class LedgerMismatch(OncebusError):
    """The ledger is not one that this caller may use."""


class LedgerNotShared(LedgerMismatch):
    """This machine has another folder than the driver under the ledger's path."""


@dataclass(frozen=True, slots=True)
class Description:
    """What `ledger.json` says. `id` is None in a ledger of format 1."""

    key: tuple[str, ...]
    id: str | None

    def to_json(self) -> bytes:
        """The file's content."""
        return json.dumps({"format": FORMAT, "id": self.id, "key": list(self.key)}, indent=1).encode() + b"\n"

    @classmethod
    def from_json(cls, data: bytes, location: str) -> Description:
        """Read back what `to_json` wrote. Raises `LedgerMismatch` if it is something else."""
        try:
            found = json.loads(data)
            found_format, key = found["format"], tuple(map(str, found["key"]))
            identity = None if found_format == _WITHOUT_ID else str(found["id"]) if found_format == FORMAT else ""
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise LedgerMismatch(f"Ledger '{location}' has an unreadable '{FILE_NAME}': {error}") from error
        if identity == "":
            raise LedgerMismatch(
                f"Ledger '{location}' has format {found_format}; this version of Oncebus writes format {FORMAT}. "
                "Use the version that made it, or start a new ledger."
            )
        return cls(key, identity)


def describe_or_check(storage: Storage, key: Sequence[str]) -> str:
    """Make the folder a ledger for this key, or check that it is one; the ledger's id.

    Of two that create it at the same moment, both get the id of the one that came first. Raises `LedgerMismatch` if
    the folder holds something else, or a ledger for another key.
    """
    stamps = storage.names()
    if FILE_NAME not in stamps:
        others = [name for name in stamps if not name.startswith(TEMPORARY)]
        if others:
            raise LedgerMismatch(
                f"Folder '{storage.location}' is not a ledger: it holds '{min(others)}' but no '{FILE_NAME}'. "
                "Give a folder of its own."
            )
        made = Description(tuple(key), uuid.uuid4().hex)
        if storage.publish_new(FILE_NAME, [made.to_json()]) and made.id is not None:
            return made.id
    found = Description.from_json(bytes(storage.read(FILE_NAME)), storage.location)
    if found.key != tuple(key):
        raise LedgerMismatch(
            f"Ledger '{storage.location}' is for the key ({', '.join(found.key)}), not for ({', '.join(key)}). Use the "
            "same key columns, or start a new ledger."
        )
    if found.id is not None:
        return found.id
    identity = uuid.uuid4().hex
    storage.publish(FILE_NAME, [Description(found.key, identity).to_json()])
    return identity


def not_shared(location: str, found: str | None) -> LedgerNotShared:
    """The error for a machine that has another folder under this path, or none."""
    seen = "has no ledger" if found is None else "has another ledger"
    return LedgerNotShared(
        f"Machine '{platform.node()}' {seen} at '{location}': not the one that the driver opened. Give a path or URI "
        "that all machines share; if the folder was replaced meanwhile, call detect_duplicates again."
    )
