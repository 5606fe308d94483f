"""Object stores that fail, stall, lose answers or ignore conditions, and files that are transferred in parts."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator

import pytest

from oncebus.ledger import Ledger, LedgerInUse, Owner, StorageError, Writer
from oncebus.ledger.object_place import StorePatience, parse_place
from oncebus.ledger.object_storage import ObjectStorage, object_storage
from oncebus.ledger.storage import Piece
from tests.histories import SECOND, START, rows_of
from tests.ledger.faults import Fault, Relay, relay
from tests.object_stores import Server
from tests.reference import Message

HASTY = StorePatience(request=1, total=1)


@pytest.fixture
def between(object_store: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Relay]:
    """Run a relay that all storages of the test go through."""
    with relay(object_store.port) as running:
        for name, value in object_store.behind(running.server_port).environment.items():
            monkeypatch.setenv(name, value)
        yield running


@pytest.fixture
def storage(object_store: Server, between: Relay) -> ObjectStorage:
    location = object_store.new_location()
    return ObjectStorage(parse_place(location), location, StorePatience(request=1))


@pytest.mark.parametrize(
    "fault", [Fault.CUT, Fault.STALL, Fault.LOST_ANSWER, Fault.SLOW_ANSWER, Fault.UNAVAILABLE], ids=lambda it: it.name
)
def test_a_put_that_fails_once_is_retried(storage: ObjectStorage, between: Relay, fault: Fault) -> None:
    """A claim too: if the first attempt reached the store, the second one recognises it as its own."""
    storage.publish_new("earlier", [b"so that what the store can do is known"])
    between.spoil(fault, 1)
    assert storage.publish_new("claim", [b"ours"])
    assert between.spoilt == 1
    assert not storage.publish_new("claim", [b"theirs"])
    between.spoil(fault, 1)
    storage.publish("run", [b"abc" * 1000])
    assert bytes(storage.read("run")) == b"abc" * 1000
    assert sorted(storage.names()) == ["claim", "earlier", "run"]


@pytest.mark.parametrize("fault", [Fault.CUT, Fault.STALL, Fault.UNAVAILABLE], ids=lambda it: it.name)
@pytest.mark.parametrize("is_claim", [False, pytest.param(True, marks=pytest.mark.torture)])
def test_a_put_that_always_fails_is_given_up_and_leaves_nothing(
    storage: ObjectStorage, between: Relay, fault: Fault, is_claim: bool
) -> None:
    hasty = ObjectStorage(parse_place(storage.location), storage.location, HASTY)
    hasty._honours_conditions = True
    between.spoil(fault, 1000)
    with pytest.raises(StorageError, match=r"Ledger folder '.*' cannot be written: .* \('new'\)") as raised:
        (hasty.publish_new if is_claim else hasty.publish)("new", [b"abc" * 1000])
    assert between.spoilt > 0
    assert "\n" not in str(raised.value)
    assert "Debug source" not in str(raised.value)
    between.spoil(fault, 0)
    assert storage.names() == {}


def test_a_claim_with_a_lost_answer_belongs_to_its_writer(object_store: Server, between: Relay) -> None:
    """The first writer of a ledger claims, and the answer is lost. It continues, and another writer is refused."""
    ledger = Ledger.open(object_store.new_location())
    ledger.describe_or_check(["key string"])
    ledger._storage.publish_new("earlier", [b""])
    ledger._storage.delete(["earlier"])
    between.spoil(Fault.LOST_ANSWER, 1)
    generation = ledger.join(Writer("aa", "one", Owner("elsewhere", 1, "0")), 0)
    assert between.spoilt == 1
    ledger.judge(rows_of([Message("k", START, 1, SECOND)]), generation, 0, part=0, parts=1, clock=2**62)
    with pytest.raises(LedgerInUse, match="by query one on another machine"):
        ledger.join(Writer("bb", "two", Owner.this_process(), 1, has_ended=False), 0)


def test_a_store_that_ignores_conditions_is_refused(
    object_servers: Callable[[str], Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = object_servers("s3")
    with relay(server.port) as between:
        for name, value in server.behind(between.server_port).environment.items():
            monkeypatch.setenv(name, value)
        storage = object_storage(server.new_location())
        storage.publish("claim", [b"theirs"])
        between.spoil(Fault.UNCONDITIONAL, 1000)
        with pytest.raises(StorageError, match=r"ignores 'If-None-Match: \*', so two writers could claim"):
            storage.publish_new("claim", [b"ours"])
        assert list(storage.names()) == ["claim"]
        assert bytes(storage.read("claim")) == b"theirs"


def test_large_files_are_transferred_in_parts(remote: str, monkeypatch: pytest.MonkeyPatch, between: Relay) -> None:
    # The smallest part that S3 accepts.
    monkeypatch.setattr("oncebus.ledger.object_storage._CHUNK", 5 << 20)
    storage = object_storage(remote)
    content = random.Random(1).randbytes(12_000_001)
    pieces: list[Piece] = [content[:7], memoryview(content)[7:6_000_000], memoryview(content)[6_000_000:]]
    storage.publish("large", pieces)
    assert storage.names()["large"].size == len(content)
    assert bytes(storage.read("large")) == content
    # If the upload is cut between its parts, the object appears whole or not at all.
    between.spoil(Fault.CUT, 1)
    storage.publish("again", pieces)
    assert between.spoilt == 1
    assert bytes(storage.read("again")) == content
    impatient = ObjectStorage(parse_place(remote), remote, HASTY)
    between.spoil(Fault.UNAVAILABLE, 1000)
    with pytest.raises(StorageError, match="cannot be written"):
        impatient.publish("never", pieces)
    between.spoil(Fault.CUT, 0)
    assert sorted(storage.names()) == ["again", "large"]


def test_a_file_that_is_replaced_while_it_is_read(remote: str) -> None:
    here, there = (ObjectStorage(parse_place(remote), remote) for _ in range(2))
    here.publish("one", [b"abc"])
    assert here.names()["one"].size == 3
    there.publish("one", [b"xyz"])
    assert bytes(here.read("one")) == b"xyz"


def test_objects_of_other_programs_are_ignored(remote: str) -> None:
    """They leave folders, and objects with an empty name that mark a folder."""
    storage = object_storage(remote)
    storage.publish("one", [b"abc"])
    storage.publish("within/two", [b"abc"])
    assert list(storage.names()) == ["one"]


def test_a_missing_bucket(remote: str) -> None:
    storage = object_storage(remote.replace("ledgers", "nothing"))
    answer = r"404 Not Found: (NoSuchBucket|ContainerNotFound), The specified (bucket|container) does not exist\.?"
    with pytest.raises(StorageError, match=rf"Ledger folder '.*' cannot be read: .* {answer}$"):
        storage.names()
    with pytest.raises(StorageError, match=rf"cannot be written: .* {answer} \('x'\)$"):
        storage.publish("x", [b""])


def test_an_unreachable_store(remote: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AZURE_STORAGE_ENDPOINT"):
        monkeypatch.setenv(name, "http://127.0.0.1:1/x")
    storage = ObjectStorage(parse_place(remote), remote, HASTY)
    with pytest.raises(StorageError, match=r"cannot be read: .*error sending request") as raised:
        storage.names()
    assert "\n" not in str(raised.value)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_gets_an_error_instead_of_hanging(remote: str) -> None:
    object_storage(remote).publish("one", [b"abc"])
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            object_storage(remote + "/another").names()
        except StorageError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with open(reading) as errors:
        assert "this process was forked from one that has used an object store" in errors.read()
