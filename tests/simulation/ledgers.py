"""Where the ledgers of simulated lives are: a disk that loses power or fails, and a bucket whose answers get lost.

The lives themselves are those of `tests.ledger.lives`: batches, asides, forgets, writers that die or stall.
"""

from __future__ import annotations

import errno
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from obstore.exceptions import AlreadyExistsError, GenericError, PreconditionError

from oncebus.ledger import Ledger, object_storage
from oncebus.ledger.object_place import ObjectPlace
from oncebus.ledger.object_storage import ObjectStorage
from oncebus.ledger.storage import Storage
from tests.ledger.lives import live
from tests.ledger.processes import Place, Process, Watched
from tests.simulation.disk import Disk


class FailingFolder(Place):
    """A folder on a disk that loses power, is full, or has errors."""

    def __init__(self, folder: str, seed: int) -> None:
        root = Path(folder, "disk")
        root.mkdir()
        super().__init__(str(root / "ledger"))
        self._chance = Random(f"{seed} folder")
        self._disk = Disk(root, Random(f"{seed} disk"), self._before)
        self._disk.keep()
        self._left, self._error = 0, 0

    def watching(self) -> Any:
        """Replace the disk in a block."""
        return self._disk.watching()

    def fail(self, work: Callable[[Ledger], object]) -> str | None:
        """See `Place.fail`. A process that fails here has no effect any more."""
        draw = self._chance.random()
        if draw > 0.5:
            return None
        self._error = 0 if draw < 0.35 else self._chance.choice((errno.ENOSPC, errno.EIO))
        self._left = self._chance.randint(1, 60)
        Process(self, lambda _: False, dies=False).start(work)
        self._left = 0
        if self._error:
            return "disk errors"
        self._disk.cut()
        return "power cuts"

    def _before(self, what: str) -> None:
        if not self._left:
            return
        self._left -= 1
        if self._error and self._left < 3 and what != "delete":
            raise OSError(self._error, os.strerror(self._error))
        if not self._error and not self._left:
            self._disk.turn_off()


class Bucket(Place):
    """A bucket of an object store, and what its clients experience.

    Puts may not arrive, their answers may get lost, and a conditional put may be refused while nobody has the name. A
    listing has two pages, between which others go on. Everything else that fails is asked again by obstore itself.
    """

    def __init__(self, folder: str, seed: int, faults: Counter[str]) -> None:
        super().__init__(f"s3://simulated{folder}")
        self._chance = Random(f"{seed} bucket")
        self._objects: dict[str, tuple[bytes, int]] = {}
        self._puts, self._cache = 0, f"{folder}/cache"
        # All objects are new: marks of processes elsewhere do not count as given up.
        self._began = datetime.now(UTC)
        self._deletes_strictly = seed % 4 < 2
        self._faults = faults
        self._storage = self._connect(None)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Replace the client of object stores in a block. Nobody waits before asking again."""
        with ExitStack() as stack:
            stack.enter_context(mock.patch.object(object_storage, "obstore", _Requests))
            stack.enter_context(mock.patch.object(time, "sleep"))
            stack.enter_context(mock.patch.dict(os.environ, ONCEBUS_LEDGER_CACHE=self._cache))
            yield

    def open(self) -> Ledger:
        """See `Place.open`."""
        return Ledger(self._storage)

    def storage_of(self, process: Process) -> Storage:
        """See `Place.storage_of`. Each process has a connection of its own."""
        return Watched(self._connect(process), process)

    def _connect(self, process: Process | None) -> ObjectStorage:
        place = mock.create_autospec(ObjectPlace, instance=True)
        place.may_ignore_conditions = False
        place.connect.return_value = _Client(self, process)
        return ObjectStorage(place, self.location)

    # What a client asks.

    def put(self, name: str, content: bytes, *, is_new: bool, lost: int) -> bool:
        """Take an object. Return whether the client gets to know. `lost` is how many puts in a row went wrong."""
        draw = self._chance.random()
        if lost < 2 and draw < 0.04:
            self._faults["lost requests"] += 1
            return False
        if is_new and (name in self._objects or (lost < 1 and draw < 0.08)):
            self._faults["refused"] += name not in self._objects
            raise AlreadyExistsError(name)
        self._puts += 1
        self._objects[name] = content, self._puts
        if lost < 2 and draw > 0.9:
            self._faults["lost answers"] += 1
            return False
        return True

    def get(self, name: str, tag: str | None) -> bytes:
        """Return an object, of this version."""
        self.meta(name)
        content, version = self._objects[name]
        if tag is not None and tag.strip('"') != str(version):
            raise PreconditionError(name)
        return content

    def meta(self, name: str) -> dict[str, Any]:
        """Describe an object."""
        if name not in self._objects:
            raise FileNotFoundError(name)
        content, version = self._objects[name]
        return {"path": name, "size": len(content), "last_modified": self._began, "e_tag": f'"{version}"'}

    def list(self, process: Process | None) -> list[dict[str, Any]]:
        """List the objects page by page, as they are when each page is made."""
        names = sorted(self._objects)
        middle = names[len(names) // 2] if names else ""
        found = [self.meta(name) for name in names if name < middle]
        if process is not None:
            process.operate("page")
        return found + [self.meta(name) for name in sorted(self._objects) if name >= middle]

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects. As in Azure, this may stop at one that is gone already."""
        for name in names:
            if self._deletes_strictly and name not in self._objects:
                raise FileNotFoundError(name)
            self._objects.pop(name, None)


class _Client:
    def __init__(self, bucket: Bucket, process: Process | None) -> None:
        self.bucket, self.process, self.lost = bucket, process, 0


class _Requests:
    """The functions of `obstore` that a ledger uses."""

    @staticmethod
    def put(client: _Client, name: str, data: Any, *, mode: str = "overwrite", **_: Any) -> None:
        content = bytes(data) if isinstance(data, bytes) else b"".join(data)
        if not client.bucket.put(name, content, is_new=mode == "create", lost=client.lost):
            client.lost += 1
            raise GenericError("the connection was closed")
        client.lost = 0

    @staticmethod
    def get(client: _Client, name: str, *, options: Any = None) -> Any:
        content = client.bucket.get(name, (options or {}).get("if_match"))
        begin, end = (options or {}).get("range", (0, len(content)))
        return mock.Mock(**{"bytes.return_value": content[begin:end]})

    @staticmethod
    def head(client: _Client, name: str) -> dict[str, Any]:
        return client.bucket.meta(name)

    @staticmethod
    def list_with_delimiter(client: _Client) -> dict[str, Any]:
        return {"objects": client.bucket.list(client.process)}

    @staticmethod
    def delete(client: _Client, names: str | Sequence[str]) -> None:
        client.bucket.delete([names] if isinstance(names, str) else names)


def live_ledger(seed: int, steps: int, figures: Counter[str]) -> None:
    """Live the life of a ledger: three seeds on a failing disk, then three in a bucket. Raises if a rule is broken.

    `figures` counts what happens.
    """
    with ExitStack() as stack:

        def make_place(folder: str, seed: int) -> Place:
            place = Bucket(folder, seed, figures) if seed // 3 % 2 else FailingFolder(folder, seed)
            stack.enter_context(place.watching())
            return place

        live([seed], steps, figures, make_place)
