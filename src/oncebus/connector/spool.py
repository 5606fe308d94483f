"""Keeps received messages in a folder until Spark has committed them.

Service Bus has no offsets: a message that is received twice has two places in time, and nobody can ask for it again.
So the source writes every micro-batch here before it tells Spark that the batch exists, and tasks read it from here.
A batch that Spark repeats has exactly the same rows.

Files of a spool, each written aside, synced and renamed:

- `spool.json`: the id of the spool and the entity it belongs to. The id is part of every offset.
- `00000000000000000007.arrow`: the rows of batch 7, which ends at offset 8. An Arrow IPC file; each of its record
  batches is one task.
- `settling.json`: the number of the first batch that Spark may not have finished, and the messages of finished
  batches that are not completed yet, because their lock was lost. Each is its sequence number, its enqueued time and
  the time at which it was noted.
- `lock`: locked by the process that uses the spool. The operating system releases it when that process ends.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from oncebus.connector.errors import BadSpool
from oncebus.connector.options import Entity
from oncebus.connector.schema import ARROW_SCHEMA
from oncebus.values import disk
from oncebus.values.durations import DAY
from oncebus.values.errors import clip

PATIENCE = 60.0
"""How long to wait for the lock of a spool, in seconds: the process of a killed driver takes a moment to end."""
REMEMBERED = 14 * DAY
START_AGAIN = (
    "Start with a new checkpoint. In the mode peek_lock, messages that were not completed come again. Spark's file "
    "sinks then need a new path too, because they skip the numbers of batches that the old one has."
)
_IDENTITY, _SETTLING, _LOCK, _ROWS = "spool.json", "settling.json", "lock", ".arrow"
_DAMAGE = (ValueError, TypeError, KeyError, pa.ArrowException)
"""Errors of JSON and of Arrow about the content of a file."""
# What to do about a damaged file. Nothing here deletes it: it may be the only copy, or may still be readable by hand.
_ADVICE = {
    _IDENTITY: (
        "Restore it, or use another folder: in the mode peek_lock, messages that were not completed come again."
    ),
    _SETTLING: (
        "Restore it, or delete it: messages that were committed and not completed then come again, and "
        "detect_duplicates finds them."
    ),
    _ROWS: (
        "Restore it, or move it elsewhere and start the query again: in the mode peek_lock, its messages come again. "
        f"If the checkpoint is refused then: {START_AGAIN}"
    ),
}


class Identity(NamedTuple):
    """What identifies a message of an entity, in any delivery.

    The sequence number alone would not do: an entity that is deleted and created again starts with 1.
    """

    sequence_number: int
    enqueued_time: int
    """In microseconds since 1970."""


class Spool:
    """A spool that this process has locked."""

    def __init__(self, folder: str, identity: str, lock: int) -> None:
        self.folder, self.identity, self._lock = folder, identity, lock
        self._saved: tuple[int, frozenset[Identity]] = (0, frozenset())
        self._noted: dict[Identity, int] = {}

    @classmethod
    def open(cls, folder: str, entity: Entity, host: str, *, patience: float = PATIENCE) -> Spool:
        """Open or create a spool and lock it. Raises `BadSpool`.

        Waits up to `patience` seconds for a process that still uses it.
        """
        # Tasks may have another working directory.
        folder = os.path.abspath(folder)
        with _reporting(folder):
            # It holds the content of messages. To let others read it, create the folder beforehand.
            disk.make_folder(folder, 0o700)
            lock = _take_lock(folder, patience)
            try:
                identity = _own_identity(folder, f"{entity} at {host}")
                disk.delete_abandoned(folder)
            except BaseException:
                os.close(lock)
                raise
        return cls(folder, identity, lock)

    def close(self) -> None:
        """Release the spool for other processes."""
        os.close(self._lock)

    def numbers(self) -> list[int]:
        """Return the numbers of all batches in the spool, in order. Raises `BadSpool`."""
        with _reporting(self.folder):
            names = os.listdir(self.folder)
        numbers = (name.removesuffix(_ROWS) for name in names if name.endswith(_ROWS))
        return sorted(int(number) for number in numbers if number.isdecimal())

    def write(self, number: int, rows: pa.RecordBatch, parts: int) -> None:
        """Write a batch, in at most `parts` parts. Once this returns, it survives any crash. Raises `BadSpool`."""
        sink = pa.BufferOutputStream()
        length = -(-rows.num_rows // parts)
        with pa.ipc.new_file(sink, rows.schema) as file:
            for at in range(0, rows.num_rows, length):
                file.write_batch(rows.slice(at, length))
        with _reporting(self.folder, _name(number)):
            disk.publish(self.folder, _name(number), [sink.getvalue()])

    def parts(self, number: int) -> int:
        """Return the number of parts of a batch. Raises `BadSpool` if the spool does not have it."""
        with _reporting(self.folder, _name(number)):
            try:
                return int(_open_batch(self.folder, number).num_record_batches)
            except FileNotFoundError:
                raise BadSpool(
                    f"The spool '{self.folder}' has no batch {number}, which the checkpoint needs: it was deleted, or "
                    f"another query has used it. {START_AGAIN}"
                ) from None

    def identities(self, number: int) -> list[Identity]:
        """Return the messages of a batch. Raises `BadSpool`."""
        with _reporting(self.folder, _name(number)):
            table = _open_batch(self.folder, number).read_all().select(["sequence_number", "enqueued_time"])
            table.validate(full=True)
            times = table.column("enqueued_time").cast(pa.int64()).to_pylist()
        return [
            Identity(sequence, enqueued)
            for sequence, enqueued in zip(table.column("sequence_number").to_pylist(), times, strict=True)
        ]

    def delete(self, number: int) -> None:
        """Delete a batch. Raises `BadSpool`."""
        with _reporting(self.folder, _name(number)):
            disk.delete(os.path.join(self.folder, _name(number)))

    def settling(self, now: int) -> tuple[int, frozenset[Identity]]:
        """Return the first batch that may not be finished, and the messages still to complete.

        Messages that did not come back for 14 days are forgotten: they have expired, or somebody else has them.
        Raises `BadSpool`.
        """
        with _reporting(self.folder, _SETTLING):
            try:
                found = json.loads(Path(self.folder, _SETTLING).read_bytes())
            except FileNotFoundError:
                return self._saved
            finished = int(found["finished"])
            self._noted = {Identity(int(number), int(time)): int(noted) for number, time, noted in found["left"]}
        left = frozenset(identity for identity, noted in self._noted.items() if noted > now - REMEMBERED)
        self._saved = (finished, left)
        return self._saved

    def save_settling(self, finished: int, left: Iterable[Identity], now: int) -> None:
        """Note how far Spark has finished, and the messages still to complete, unless it is noted already.

        Raises `BadSpool`.
        """
        new = (finished, frozenset(left))
        if new == self._saved:
            return
        entries = [(*identity, self._noted.get(identity, now)) for identity in sorted(new[1])]
        content = json.dumps({"finished": finished, "left": entries}).encode()
        with _reporting(self.folder, _SETTLING):
            disk.publish(self.folder, _SETTLING, [content])
        self._noted = {Identity(number, enqueued): at for number, enqueued, at in entries}
        self._saved = new


def read_part(folder: str, identity: str, number: int, part: int) -> pa.RecordBatch:
    """Return one part of a batch, in a task. Raises `BadSpool` if this machine does not see the driver's spool."""
    place = f"'{folder}' on '{os.uname().nodename}'"
    try:
        found = _identity_of(folder)
        if found is None or found["id"] != identity:
            raise BadSpool(
                f"The folder {place} is not the driver's spool. On a cluster, the option 'spool' must be a folder that "
                "all machines share."
            )
        rows = _open_batch(folder, number).get_batch(part)
        # Rows with damaged offsets could crash Spark's process, which trusts them.
        rows.validate(full=True)
        return rows
    except PermissionError:
        raise BadSpool(
            f"The user {os.geteuid()} of the executor may not read the spool {place}. The source creates it for the "
            "driver's user only: create the folder beforehand with rights for both."
        ) from None
    except OSError as error:
        if error.errno is not None:
            raise BadSpool(f"Cannot read batch {number} of the spool {place}: {error.strerror}.") from None
        raise _damage_error(f"'{_name(number)}' of the spool {place}", _ROWS, error) from None
    except _DAMAGE as error:
        raise _damage_error(f"'{_name(number)}' of the spool {place}", _ROWS, error) from None


def _open_batch(folder: str, number: int) -> pa.ipc.RecordBatchFileReader:
    path = os.path.join(folder, _name(number))
    os.stat(path)
    file = pa.ipc.open_file(disk.map_file(path))
    if not file.schema.equals(ARROW_SCHEMA):
        raise ValueError("it has other columns than this version of Oncebus writes")
    return file


def _name(number: int) -> str:
    return f"{number:020d}{_ROWS}"


def _identity_of(folder: str) -> dict[str, str] | None:
    try:
        found = json.loads(Path(folder, _IDENTITY).read_bytes())
        return {"id": found["id"], "entity": found["entity"]}
    except FileNotFoundError:
        return None
    except _DAMAGE as error:
        raise _damage_error(f"'{_IDENTITY}' of the spool '{folder}'", _IDENTITY, error) from None


def _own_identity(folder: str, wanted: str) -> str:
    """Return the id of a spool for the wanted entity, which a new one gets now."""
    found = _identity_of(folder)
    if found is None:
        identity = uuid.uuid4().hex
        disk.publish(folder, _IDENTITY, [json.dumps({"id": identity, "entity": wanted}).encode()])
        return identity
    if found["entity"] != wanted:
        raise BadSpool(f"The spool '{folder}' belongs to {found['entity']}, not to {wanted}. Use another folder.")
    return found["id"]


def _take_lock(folder: str, patience: float) -> int:
    lock = os.open(os.path.join(folder, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(lock)
                raise BadSpool(f"The spool '{folder}' is in use by another query. Give each query its own.") from None
            time.sleep(0.1)


@contextmanager
def _reporting(folder: str, name: str | None = None) -> Iterator[None]:
    """Turn an error about the folder, or about one of its files, into `BadSpool`, which says what to do."""
    try:
        yield
    except OSError as error:
        # Arrow raises one without a number for a file that is too short.
        if error.errno is None and name is not None:
            raise _damage_error(f"'{name}' of the spool '{folder}'", name, error) from None
        what = f"The spool '{folder}'" if name is None else f"The file '{name}' of the spool '{folder}'"
        raise BadSpool(
            f"{what} cannot be used: {error.strerror or error}. Correct this, and start the query again: in the mode "
            "peek_lock nothing is lost."
        ) from None
    except _DAMAGE as error:
        if name is None:
            raise
        raise _damage_error(f"'{name}' of the spool '{folder}'", name, error) from None


def _damage_error(what: str, name: str, error: Exception) -> BadSpool:
    advice = _ADVICE[_ROWS if name.endswith(_ROWS) else name]
    return BadSpool(f"The file {what} is damaged: {clip(' '.join(str(error).split()))}. {advice}")
