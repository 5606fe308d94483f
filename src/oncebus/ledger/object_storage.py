"""Stores a ledger in an object store (S3, Google Cloud Storage or Azure Blob Storage), through obstore.

An object appears whole or not at all. `publish_new` is a put on the condition that the name does not exist. Objects
that were read are cached on this machine: see `oncebus.ledger.copies`.
"""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, GenericError, PreconditionError

from oncebus.ledger.copies import FileCopies
from oncebus.ledger.object_place import ObjectPlace, StorePatience, parse_place
from oncebus.ledger.storage import Piece, Stamp, StorageError, list_until_agreed
from oncebus.values import disk

if TYPE_CHECKING:
    from obstore import GetOptions, ObjectMeta
    from obstore.store import AzureStore, GCSStore, S3Store

_CHUNK = 8 << 20
"""The maximum number of bytes in one request, so that each request ends or fails soon. Larger objects are split."""

_PARTS_AT_ONCE = 4
_ATTEMPTS = 3
_PAUSE = 0.2

_Answer = TypeVar("_Answer")


def object_storage(uri: str) -> ObjectStorage:
    """Return the storage at a URI.

    Later calls in this process return the same object, with its connections and its listing.
    """
    place = parse_place(uri)
    known = _OPENED.pop((uri, place), None) or ObjectStorage(place, uri)
    _OPENED[(uri, place)] = known
    while len(_OPENED) > _MOST_OPENED:
        del _OPENED[next(iter(_OPENED))]
    return known


class ObjectStorage:
    """A folder in an object store. Each call ends within a small multiple of `patience.total`."""

    def __init__(self, place: ObjectPlace, location: str, patience: StorePatience | None = None) -> None:
        self.location = location
        self._place = place
        self._patience = patience or StorePatience()
        self._copies = FileCopies(location)
        self._listed: dict[str, Stamp] = {}
        self._honours_conditions = not place.may_ignore_conditions

    def names(self) -> dict[str, Stamp]:
        """See `Storage`."""
        listed = list_until_agreed(self._scan)
        # Other threads list, publish and delete too, so this object changes a copy of its own.
        self._listed = dict(listed)
        self._copies.sweep(listed)
        return listed

    def _scan(self) -> dict[str, Stamp]:
        found = self._request(f"Ledger folder '{self.location}' cannot be read", self._list)
        # Some programs mark a folder with an object that has an empty name.
        return {meta["path"]: _stamp(meta) for meta in found if meta["path"]}

    def _list(self) -> Sequence[ObjectMeta]:
        return obstore.list_with_delimiter(self._client)["objects"]

    def read(self, name: str) -> memoryview:
        """See `Storage`. Sends no request if this machine has a copy of the version that was last listed."""

        def whole(stamp: Stamp, what: str) -> memoryview:
            copy = self._copies.find(name, stamp)
            return self._download(name, stamp, what) if copy is None else copy

        return self._read(name, whole)

    def read_part(self, name: str, begin: int, end: int) -> memoryview:
        """See `Storage`."""

        def part(stamp: Stamp, what: str) -> memoryview:
            found = bytearray()
            for piece in self._pieces(name, stamp, what, begin, min(end, stamp.size)):
                found += piece
            return memoryview(found)

        return self._read(name, part)

    def _read(self, name: str, version: Callable[[Stamp, str], memoryview]) -> memoryview:
        """Return what `version` reads of the version of an object that was last listed, or of a newer one."""
        what = f"Ledger file '{self.location}/{name}' cannot be read"
        for _ in range(_ATTEMPTS):
            stamp = self._listed.get(name) or _stamp(self._request(what, lambda: obstore.head(self._client, name)))
            try:
                return version(stamp, what)
            except PreconditionError:
                # The object was replaced after it was listed.
                self._listed.pop(name, None)
        raise StorageError(f"{what}: it changes faster than we can read it. Start again.")

    def _pieces(self, name: str, stamp: Stamp, what: str, begin: int, end: int) -> Iterator[memoryview]:
        while begin < end:
            until = min(begin + _CHUNK, end)
            piece = self._get(name, stamp, what, begin, until)
            if len(piece) != until - begin:
                raise StorageError(f"{what}: {len(piece)} of {until - begin} bytes arrived after offset {begin}.")
            yield piece
            begin = until

    def _download(self, name: str, stamp: Stamp, what: str) -> memoryview:
        received = 0

        def pieces() -> Iterator[memoryview]:
            nonlocal received
            for piece in self._pieces(name, stamp, what, 0, stamp.size):
                yield piece
                received += len(piece)

        try:
            return self._copies.keep(name, stamp, pieces())
        except OSError as error:
            if isinstance(error, FileNotFoundError) and received == 0 and stamp.size:
                # Either the object is missing, and this raises, or another process has removed the cache folder.
                self._request(what, lambda: obstore.head(self._client, name))
            # There is no room for a copy. The ledger itself is fine, so continue without one.
            received = 0
            return memoryview(b"".join(pieces()))

    def _get(self, name: str, stamp: Stamp, what: str, begin: int, end: int) -> memoryview:
        options: GetOptions = {"range": (begin, end)}
        if stamp.tag:
            options["if_match"] = f'"{stamp.tag}"'
        return self._request(what, lambda: memoryview(obstore.get(self._client, name, options=options).bytes()))

    def publish(self, name: str, pieces: Sequence[Piece]) -> None:
        """See `Storage`. A second put writes the same object, so a retry is safe."""
        size = sum(len(piece) for piece in pieces)

        def put() -> None:
            if size <= _CHUNK:
                obstore.put(self._client, name, b"".join(pieces), use_multipart=False)
            else:
                views = (memoryview(piece).cast("B") for piece in pieces)
                obstore.put(self._client, name, views, chunk_size=_CHUNK, max_concurrency=_PARTS_AT_ONCE)

        self._put(name, put)
        self._listed.pop(name, None)

    def publish_new(self, name: str, pieces: Sequence[Piece]) -> bool:
        """See `Storage`."""
        content = b"".join(pieces)
        if not self._honours_conditions:
            self._check_conditions()
        self._listed.pop(name, None)
        for _ in range(_ATTEMPTS):
            try:
                self._put(name, lambda: obstore.put(self._client, name, content, mode="create"))
            except (AlreadyExistsError, PreconditionError):
                try:
                    # If our own put succeeded but its answer was lost, the content is ours.
                    return self._content(name) == content
                except FileNotFoundError:
                    # S3 gives the same answer while another put or delete of that name is in progress.
                    time.sleep(_PAUSE)
            else:
                return True
        raise StorageError(
            f"Ledger folder '{self.location}' cannot be written: the store says that '{name}' exists, but does "
            "not return it. Start again."
        )

    def _content(self, name: str) -> bytes:
        what = f"Ledger file '{self.location}/{name}' cannot be read"
        return self._request(what, lambda: bytes(obstore.get(self._client, name).bytes()))

    def _check_conditions(self) -> None:
        """Raise `StorageError` if the store ignores the condition of a put: two claims would overwrite each other."""
        probe = f"{disk.TEMPORARY}{uuid.uuid4().hex}"
        self._put(probe, lambda: obstore.put(self._client, probe, b"one", mode="create"))
        try:
            self._put(probe, lambda: obstore.put(self._client, probe, b"two", mode="create"))
        except (AlreadyExistsError, PreconditionError):
            self._honours_conditions = True
        finally:
            self.delete([probe])
        if not self._honours_conditions:
            raise StorageError(
                f"Ledger location '{self.location}' cannot be used: the store at {self._place.endpoint} ignores "
                "'If-None-Match: *', so two writers could claim the ledger at once. Update the store or use another."
            )

    def delete(self, names: Iterable[str]) -> None:
        """See `Storage`."""
        wanted = list(dict.fromkeys(names))
        if not wanted:
            return
        what = f"Ledger folder '{self.location}' cannot be cleaned up ('{wanted[0]}')"
        try:
            self._request(what, lambda: obstore.delete(self._client, wanted))
        except FileNotFoundError:
            # Azure stops at the first object that is already gone. Delete the others one by one.
            for name in wanted:
                try:
                    self._request(what, lambda name=name: obstore.delete(self._client, name))  # type: ignore[misc]
                except FileNotFoundError:
                    continue
        for name in wanted:
            self._listed.pop(name, None)
            self._copies.forget(name)

    def is_verified(self, name: str, stamp: Stamp) -> bool:
        """See `Storage`."""
        return self._copies.is_verified(name, stamp)

    def set_verified(self, name: str, stamp: Stamp) -> None:
        """See `Storage`."""
        self._copies.set_verified(name, stamp)

    def forget(self, name: str) -> bool:
        """See `Storage`."""
        return self._copies.forget(name)

    @cached_property
    def _connected(self) -> S3Store | GCSStore | AzureStore:
        try:
            return self._place.connect(self._patience)
        except (BaseError, ValueError) as error:
            raise StorageError(f"Ledger location '{self.location}' cannot be opened: {_one_line(error)}") from error

    @property
    def _client(self) -> S3Store | GCSStore | AzureStore:
        # A fork does not copy the threads that do the client's work, so a request would never return.
        if _USERS and os.getpid() not in _USERS:
            raise StorageError(
                f"Ledger location '{self.location}' cannot be used: this process was forked from one that has used an "
                "object store. Start processes with multiprocessing's 'spawn'."
            )
        _USERS.add(os.getpid())
        return self._connected

    def _request(self, what: str, ask: Callable[[], _Answer]) -> _Answer:
        """Send a request and return its result.

        Failures raise `StorageError`; `FileNotFoundError` and failed conditions pass through.

        The client itself retries.
        """
        try:
            return ask()
        except (FileNotFoundError, AlreadyExistsError, PreconditionError, StorageError):
            raise
        except (BaseError, OSError, ValueError) as error:
            raise StorageError(f"{what}: {_one_line(error)}") from error

    def _put(self, name: str, put: Callable[[], object]) -> None:
        """Put an object. If the outcome is unknown, put it again, because the client does not retry in that case."""
        what = f"Ledger folder '{self.location}' cannot be written"
        deadline = time.monotonic() + self._patience.total
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                put()
                return
            except (AlreadyExistsError, PreconditionError, StorageError):
                raise
            except GenericError as error:
                if attempt == _ATTEMPTS or time.monotonic() > deadline:
                    raise StorageError(f"{what}: {_one_line(error)} ('{name}')") from error
                time.sleep(_PAUSE * attempt)
            except (BaseError, OSError, ValueError) as error:
                raise StorageError(f"{what}: {_one_line(error)} ('{name}')") from error


_OPENED: dict[tuple[str, ObjectPlace], ObjectStorage] = {}
_MOST_OPENED = 16
_USERS: set[int] = set()
"""The id of the process that has sent requests: this process, or the one that it was forked from."""

_ANSWER = re.compile(r"<\?xml.*<Code>(?P<code>[^<]*)</Code>\s*<Message>(?P<message>[^<\n]*).*", re.DOTALL)


def _stamp(meta: ObjectMeta) -> Stamp:
    # Only some answers have the tag in quotation marks.
    return Stamp(meta["size"], int(meta["last_modified"].timestamp() * 1e9), (meta["e_tag"] or "").strip('"'))


def _one_line(error: BaseException) -> str:
    """Return the client's error in one line, with only the code and message of the store's XML."""
    text = str(error).partition("\n\nDebug source:")[0]
    return " ".join(_ANSWER.sub(r"\g<code>, \g<message>", text).split())
