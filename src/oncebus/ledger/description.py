"""Reads and writes `ledger.json`: the key columns of a ledger, and its unique id.

    {"format": 1, "id": "3f…", "key": ["id string"], "secret": "9c…"}

The writer that creates a ledger generates the id and sends it to its tasks. If a task finds a different id, or none,
then the path is a different folder on its machine. The secret is that of `oncebus.detection.digests`. The broker
computes its own digests, so its ledger has no secret.
"""

from __future__ import annotations

import json
import platform
import secrets
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from oncebus.ledger.storage import Storage
from oncebus.values import disk
from oncebus.values.errors import OncebusError

FORMAT = 1
_SECRET_BYTES = 32
FILE_NAME = "ledger.json"


class LedgerMismatch(OncebusError):
    """The caller cannot use this ledger: it has different key columns, a different format or a different writer."""


class LedgerNotShared(LedgerMismatch):
    """The ledger's path is a different folder on this machine than on the driver."""


@dataclass(frozen=True, slots=True)
class Description:
    """The content of `ledger.json`. `secret` is None in the ledger of a broker."""

    key: tuple[str, ...]
    id: str
    secret: bytes | None = None

    def to_json(self) -> bytes:
        """Return the content of the file."""
        secret = None if self.secret is None else self.secret.hex()
        fields = {"format": FORMAT, "id": self.id, "key": list(self.key), "secret": secret}
        return json.dumps(fields, indent=1).encode() + b"\n"

    @classmethod
    def from_json(cls, data: bytes, location: str) -> Description:
        """Parse the content of the file. Raises `LedgerMismatch` if it is not a ledger's description."""
        try:
            found = json.loads(data)
            found_format, secret = found["format"], found.get("secret")
            if found_format == FORMAT:
                key = tuple(map(str, found["key"]))
                return cls(key, str(found["id"]), None if secret is None else bytes.fromhex(secret))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise LedgerMismatch(f"Ledger '{location}' has an unreadable '{FILE_NAME}': {error}") from error
        raise LedgerMismatch(
            f"Ledger '{location}' has format {found_format}; this version of Oncebus writes format {FORMAT}. "
            "Use the version that created it, or start a new ledger."
        )


def describe_or_check(storage: Storage, key: Sequence[str], *, has_secret: bool) -> str:
    """Create a ledger for this key, or check that the folder already holds one. Return the id of the ledger.

    If two writers create it at the same moment, both get the id that the first one wrote. Raises `LedgerMismatch` if
    the folder holds something else, a ledger for another key, or one without the secret that the caller needs.
    """
    stamps = storage.names()
    if FILE_NAME not in stamps:
        if any(not name.startswith(disk.TEMPORARY) for name in stamps):
            raise not_a_ledger(storage.location, stamps)
        made = Description(tuple(key), uuid.uuid4().hex, secrets.token_bytes(_SECRET_BYTES) if has_secret else None)
        if storage.publish_new(FILE_NAME, [made.to_json()]):
            return made.id
    found = Description.from_json(bytes(storage.read(FILE_NAME)), storage.location)
    if found.key != tuple(key):
        raise LedgerMismatch(
            f"Ledger '{storage.location}' is for the key ({', '.join(found.key)}), not for ({', '.join(key)}). Use the "
            "same key columns, or start a new ledger."
        )
    if has_secret and found.secret is None:
        raise LedgerMismatch(
            f"Ledger '{storage.location}' has no secret for the digests of keys: a broker made it. Give another folder."
        )
    return found.id


def not_a_ledger(location: str, names: Iterable[str]) -> LedgerMismatch:
    """Return the error for a folder that holds these files, and no `ledger.json`."""
    others = [name for name in names if not name.startswith(disk.TEMPORARY)]
    if not others:
        return LedgerMismatch(f"There is no ledger at '{location}'.")
    return LedgerMismatch(
        f"Folder '{location}' is not a ledger: it holds '{min(others)}' but no '{FILE_NAME}'. Give another folder."
    )


def not_shared(location: str, found: str | None) -> LedgerNotShared:
    """Return the error for a machine that has a different ledger, or none, at this path."""
    seen = "no ledger" if found is None else "another ledger"
    return LedgerNotShared(
        f"Machine '{platform.node()}' cannot see the driver's ledger at '{location}': it finds {seen} there. Give a "
        "path or URI that all machines share. If the folder was replaced meanwhile, call detect_duplicates again."
    )
