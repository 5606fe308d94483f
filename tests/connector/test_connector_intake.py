"""The way from the entity into the spool, without Spark: what happens after a death at each point of it.

A death is an intake that is closed and never used again. The broker's clock is moved, so that locks expire.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage

from oncebus.broker.addresses import parse_address
from oncebus.broker.clock import wall_time
from oncebus.connector.deliveries import Known
from oncebus.connector.errors import BadOption, BadSpool, ServiceBusFailure
from oncebus.connector.options import stream_options
from oncebus.connector.receivers import Delivery, Received, Receivers
from oncebus.connector.spool import read_part
from oncebus.connector.stream import Intake, StreamSource
from oncebus.engine.store import Mode
from oncebus.values.durations import SECOND
from tests.broker.in_process import FakeTime
from tests.protocols.servicebus.bus import PATIENCE, ROOT, Bus, running_bus

Offset = dict[str, Any]
LOCK = 61.0
"""Longer than a lock, in seconds."""


@pytest.fixture(scope="module")
def amqp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bus]:
    with running_bus(tmp_path_factory.mktemp("amqp"), FakeTime()) as bus:
        yield bus


def received(receivers: Receivers, count: int, rows: int = 1000, size: int = 1 << 20) -> Received:
    """Receive until at least `count` messages have come. The client may return them one by one if it is slow."""
    found, is_sure = list[Delivery](), True
    deadline = time.monotonic() + PATIENCE
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} came"
        some = Receivers.receive(receivers, rows, size)
        found, is_sure = found + some.deliveries, is_sure and some.is_sure
    return Received(found, is_sure)


class Scene:
    """A queue and a spool, with one intake after the other. It plays the part of Spark."""

    def __init__(self, bus: Bus, folder: Path, queue: str | None = None, **options: object) -> None:
        self.bus, self.queue = bus, queue or bus.queue()
        given = {"connection_string": bus.string(), "queue": self.queue, "spool": str(folder / "spool")}
        self.options = stream_options({**given, "wait": "100 milliseconds", **{k: str(v) for k, v in options.items()}})
        self.intake = Intake(self.options)
        self.start = self.intake.first()

    def put(self, *bodies: str, **properties: Any) -> None:
        self.bus.put(self.queue, *(ServiceBusMessage(body, **properties) for body in bodies))

    def all(self, count: int) -> list[str]:
        """Run micro-batches until `count` messages have come and are completed. Return them in order."""
        found: list[str] = []
        while len(found) < count:
            found += self.batch()
        self.idle()
        return sorted(found)

    def next(self, rows: int = 1000, together: int = 1) -> Offset:
        """Return the end of the next batch, once there is one, and as many messages have come for it."""
        ends: list[Offset] = []
        receivers, known = self.intake._receivers, self.intake._deliveries.state_of

        def receive(rows: int, size: int) -> Received:
            some = Receivers.receive(receivers, rows, size)
            new = sum(known(delivery.identity) is Known.NEW for delivery in some.deliveries)
            if not new:
                return some
            del receivers.receive
            rest = received(receivers, together - new, rows, size)
            return Received(some.deliveries + rest.deliveries, some.is_sure and rest.is_sure)

        if together > 1:
            receivers.receive = receive  # type: ignore[method-assign]

        def found() -> bool:
            ends.append(self.asked(rows))
            return ends[-1] != self.start

        self.bus.until(found, "another batch")
        return ends[-1]

    def asked(self, rows: int, until: int | None = None) -> Offset:
        # The client compares the end of a lock with the machine's clock, so the broker's must not be far behind.
        assert self.bus.time is not None
        self.bus.time.now = max(self.bus.time.now, wall_time())
        return self.intake.next_after(self.start, rows, until)

    def quiet(self) -> None:
        """Ask for a batch once. There is none."""
        assert self.asked(1000) == self.start

    def idle(self) -> None:
        """Ask for batches until everything is completed. There is none."""

        def completed() -> bool:
            assert self.asked(1000) == self.start
            return not self.intake.unconfirmed

        self.bus.until(completed, "all messages are completed")

    def rows(self, end: Offset) -> list[str]:
        """Return the rows of the batch between the start and an offset."""
        parts = self.intake.parts(self.start, end)
        batches = [read_part(*part) for part in parts]
        return [body.decode() for batch in batches for body in batch.column("body").to_pylist()]

    def plan(self, rows: int = 1000, together: int = 1) -> Offset:
        """Return the end of the next batch, after telling that the one before is committed."""
        end = self.next(rows, together)
        if self.start["batch"]:
            self.intake.commit(self.start)
        return end

    def batch(self, rows: int = 1000, together: int = 1) -> list[str]:
        """Run one micro-batch as Spark does: plan it, tell that the one before is committed, read, commit."""
        end = self.plan(rows, together)
        found = self.rows(end)
        self.start = end
        if not self.options.deletes:
            # The disk that it takes is bounded: this batch, and the one before.
            assert len(self.files()) <= 2
        return found

    def die(self, *, locks_expire: bool = True) -> None:
        self.intake.close()
        if locks_expire:
            self.bus.advance(LOCK)
        self.intake = Intake(self.options)

    def left(self) -> int:
        """Count and delete the messages of the queue that are not completed."""
        self.bus.advance(LOCK)
        receive = self.bus.broker.receive(parse_address(self.queue), 1000, mode=Mode.RECEIVE_AND_DELETE)
        return len(self.bus.run(receive))

    def left_in(self, session: str | None) -> int:
        """Count the messages of a session, or of a queue without sessions, that are not completed."""
        self.bus.advance(LOCK)
        return len(self.bus.run(self.bus.broker.peek(parse_address(self.queue), 1, 1000, session=session)))

    def files(self) -> list[str]:
        return sorted(path.name for path in Path(self.options.spool).glob("*.arrow"))


@pytest.fixture
def scene(amqp: Bus, tmp_path: Path) -> Iterator[Scene]:
    made = Scene(amqp, tmp_path)
    yield made
    made.intake.close()


def test_committed_messages_are_completed_and_their_files_deleted(scene: Scene) -> None:
    scene.put("1", "2")
    assert scene.batch(together=2) == ["1", "2"]
    scene.idle()
    # Spark asked for more, so it has committed the batch: they are completed, before it calls commit.
    assert scene.left() == 0
    assert len(scene.files()) == 1
    scene.put("3")
    assert scene.batch() == ["3"]
    scene.idle()
    assert [int(name.removesuffix(".arrow")) for name in scene.files()] == [1]


def test_nothing_is_completed_before_the_batch_is_committed(scene: Scene) -> None:
    scene.put("1", "2")
    scene.rows(scene.next())
    scene.intake.close()
    assert scene.left() == 2
    scene.intake = Intake(scene.options)


def test_death_before_the_spool(scene: Scene) -> None:
    scene.put("1", "2")
    receivers = Receivers(scene.options)
    assert len(received(receivers, 2).deliveries) == 2
    receivers.close()
    scene.die()
    assert scene.batch(together=2) == ["1", "2"]


@pytest.mark.parametrize("locks_expire", [True, False])
def test_death_before_spark_has_logged_the_batch(scene: Scene, locks_expire: bool) -> None:
    scene.put("1", "2")
    end = scene.next(together=2)
    scene.die(locks_expire=locks_expire)
    assert scene.intake.first() == scene.start
    scene.put("3")
    assert scene.next() == end
    assert scene.batch() == ["1", "2"]
    scene.bus.advance(LOCK)
    assert scene.all(1) == ["3"]
    assert scene.left() == 0


def test_death_in_a_batch(scene: Scene) -> None:
    scene.put("1", "2")
    end = scene.next(together=2)
    assert scene.rows(end) == ["1", "2"]
    scene.die()
    # Spark has logged the batch, so it does not ask for an offset first.
    assert scene.rows(end) == ["1", "2"]
    scene.start = end
    scene.idle()
    assert scene.left() == 0


def test_death_before_the_messages_are_completed(scene: Scene) -> None:
    scene.put("1", "2")
    assert scene.batch(together=2) == ["1", "2"]
    scene.die()
    scene.idle()
    for body in "34":
        scene.put(body)
        assert scene.batch() == [body]
        scene.die()
        scene.idle()
    assert scene.left() == 0


def test_a_message_whose_lock_is_lost_is_not_taken_twice(scene: Scene) -> None:
    scene.put("1", "2")
    end = scene.next(together=2)
    # The batch takes longer than the lock, and the broker does not see the renewals in time.
    scene.bus.advance(LOCK)
    assert scene.rows(end) == ["1", "2"]
    scene.start = end
    scene.put("3")
    assert scene.batch() == ["3"]
    scene.idle()
    assert scene.left() == 0


def test_messages_to_complete_are_remembered_without_their_rows(scene: Scene) -> None:
    """The file of a batch is deleted although the locks of its messages are lost."""
    scene.put("1", "2")
    assert scene.batch(together=2) == ["1", "2"]
    scene.die(locks_expire=False)
    # Another message makes Spark begin a batch, and call commit for the one before.
    scene.put("3")
    assert scene.batch() == ["3"]
    scene.quiet()
    assert [int(name.removesuffix(".arrow")) for name in scene.files()] == [1]
    scene.die()
    scene.idle()
    assert scene.left() == 0


def test_the_reader_that_tasks_get_has_no_secret(amqp: Bus, tmp_path: Path) -> None:
    given = {"connection_string": amqp.string(), "queue": "a", "spool": str(tmp_path / "spool")}
    secret = ROOT.primary_key.encode()
    assert secret in pickle.dumps(given)
    assert secret not in pickle.dumps(StreamSource(given))


def test_the_lock_of_a_session_is_lost(amqp: Bus, tmp_path: Path) -> None:
    """The stream takes the session again, and no message twice."""
    scene = Scene(amqp, tmp_path, amqp.queue(requires_session=True), sessions="true")
    for session in ("a", "b"):
        scene.put(f"{session}1", f"{session}2", session_id=session)
        end = scene.plan(together=2)
        if session == "a":
            amqp.advance(LOCK)
        assert scene.rows(end) == [f"{session}1", f"{session}2"]
        scene.start = end
        if session == "b":
            amqp.advance(LOCK)
    scene.put("a3", session_id="a")
    assert scene.all(1) == ["a3"]
    scene.intake.close()
    assert sum(scene.left_in(session) for session in "ab") == 0


def test_a_partitioned_queue(amqp: Bus, tmp_path: Path) -> None:
    scene = Scene(amqp, tmp_path, amqp.queue(enable_partitioning=True), receivers=2, max_rows=7)
    bodies = [f"{number:02}" for number in range(20)]
    for number, body in enumerate(bodies):
        scene.put(body, partition_key=f"key-{number % 5}")
    end = scene.next()
    scene.die()
    assert scene.next() == end
    assert scene.all(20) == bodies
    assert scene.left() == 0
    scene.intake.close()


def test_a_message_that_cannot_be_read_stops_nothing(scene: Scene) -> None:
    """Senders choose these values. Other columns of the message, and other messages, are not harmed."""
    scene.put("1")
    scene.put("2", application_properties={"DeadLetterReason": {"TYPE": "BINARY", "VALUE": b"\xff"}})
    scene.bus.put(scene.queue, AmqpAnnotatedMessage(value_body={"a": [1, "b", {"c": None}]}))
    scene.put("3")
    assert scene.all(4) == ["1", "2", "3", '{"a": [1, "b", {"c": null}]}']
    assert scene.left() == 0


def test_a_link_that_fails_keeps_no_message_of_the_others_back(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    options = replace(scene.options, receivers=2)
    scene.put("1", "2")
    receivers = Receivers(options)
    pull, failing = receivers._pull, receivers._links[0]
    came: list[Delivery] = []

    async def partly(link: Any, most: int, wait: float) -> Any:
        if link is failing:
            raise ServiceBusFailure("This link has failed.")
        some = await pull(link, most, wait if len(came) == 2 else PATIENCE)
        came.extend(some or [])
        return some

    monkeypatch.setattr(receivers, "_pull", partly)
    both = received(receivers, 2)
    assert (len(both.deliveries), both.is_sure) == (2, False)
    with pytest.raises(ServiceBusFailure, match="This link has failed"):
        receivers.receive(10, 1 << 20)
    receivers.close()


def test_limits_by_rows_and_bytes(amqp: Bus, tmp_path: Path) -> None:
    scene = Scene(amqp, tmp_path, max_bytes=2500, receivers=2, partitions=3)
    bodies = [f"{number}".ljust(1000, ".") for number in range(9)]
    scene.put(*bodies)
    by_size = scene.batch()
    assert 1 <= len(by_size) <= 3
    by_rows = scene.batch(rows=2)
    assert 1 <= len(by_rows) <= 2
    found = by_size + by_rows
    while len(found) < len(bodies):
        rows = scene.batch()
        assert len(rows) <= 3
        found += rows
    assert sorted(found) == bodies
    scene.idle()
    assert scene.left() == 0
    scene.intake.close()


def test_a_query_with_a_new_checkpoint_begins_with_what_is_left(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.put("1")
    assert scene.batch() == ["1"]
    scene.idle()
    scene.put("2")
    scene.next()
    scene.die()
    assert "new path" not in caplog.text
    scene.start = scene.intake.first()
    assert scene.batch() == ["2"]
    # Spark asks twice.
    scene.intake.first()
    (warning,) = [record.getMessage() for record in caplog.records if record.name == "oncebus.connector"]
    assert warning.startswith(f"An earlier query has used the spool '{scene.options.spool}'")
    assert "give it a new path too" in warning
    scene.idle()
    assert scene.left() == 0


def test_no_warning_about_the_first_batch_of_a_spool(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """Spark asks for the first offset again when the first batch is in the spool, and after a death in that batch."""
    scene.put("1")
    end = scene.next()
    assert scene.intake.first() == scene.start
    scene.die()
    assert scene.intake.first() == scene.start
    assert scene.rows(end) == ["1"]
    assert "An earlier query" not in caplog.text


def test_locks_are_lost_of_messages_that_wait_for_a_batch(
    amqp: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection breaks after `max_bytes` has cut a batch. A query that ends with an empty queue goes on."""
    scene = Scene(amqp, tmp_path, max_bytes=1)
    scene.put("1", "2", "3")
    assert scene.batch(together=3) == ["1"]
    receivers = scene.intake._receivers
    receivers._start(receivers._close_all()).result()
    scene.bus.advance(LOCK)
    # The first one comes again too, and is completed.
    monkeypatch.setattr(receivers, "receive", lambda rows, size: received(receivers, 3, rows, size))
    end = scene.asked(1000, until=1 << 60)
    assert end != scene.start
    assert scene.rows(end) == ["2"]
    scene.intake.close()


def test_an_offset_of_another_spool(scene: Scene) -> None:
    other = {"spool": "other", "batch": 5}
    scene.put("1")
    # Everything up to it is committed, and this spool is empty.
    scene.start = other
    assert scene.batch() == ["1"]
    with pytest.raises(BadSpool, match="holds batches of another query"):
        scene.intake.next_after(other, 10, None)
    with pytest.raises(BadSpool, match="The checkpoint needs batches of another spool"):
        scene.intake.parts({"spool": "other", "batch": 4}, other)


def test_an_older_copy_of_the_checkpoint(scene: Scene) -> None:
    """Batches would get numbers that the table has already, and Spark's file sink would skip them."""
    starts = [scene.start]
    for body in "123":
        scene.put(body)
        assert scene.batch() == [body]
        starts.append(scene.start)
    scene.idle()
    scene.put("4")
    for start in starts[:2]:
        scene.die()
        scene.start = start
        with pytest.raises(BadSpool) as raised:
            scene.next()
        text = f"The checkpoint is older than the spool '{scene.options.spool}': it continues with batch "
        text = f"{text}{start['batch']}, and the spool is at batch 3. Messages of batches before 3 were completed and "
        assert str(raised.value).startswith(f"{text}do not come again. ")
        assert "\n" not in str(raised.value)
    # The newest batch is still in the spool. It is repeated with the same rows.
    scene.die()
    scene.start = starts[2]
    assert scene.batch() == ["3"]
    assert scene.all(1) == ["4"]
    assert scene.left() == 0


@pytest.mark.parametrize("other", [5, {"partition": 5}, {"spool": "a", "batch": "5"}])
def test_an_offset_of_another_source(scene: Scene, other: Any) -> None:
    for call in (lambda: scene.intake.next_after(other, 1, None), lambda: scene.intake.parts(other, {})):
        with pytest.raises(BadSpool, match=r"^The checkpoint belongs to another source: .* Use a new checkpoint\.$"):
            call()


def test_a_damaged_batch_in_the_spool(scene: Scene) -> None:
    """The query is refused and the spool is free. When somebody has moved the file, its messages come again.

    If Spark has logged the batch, the query needs a new checkpoint for that.
    """
    scene.put("1", "2")
    end = scene.next(together=2)
    scene.intake.close()
    file = Path(scene.options.spool, scene.files()[0])
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(BadSpool, match=f"The file '{file.name}' of the spool .* is damaged: "):
        Intake(scene.options)
    file.rename(file.with_suffix(".damaged"))
    scene.bus.advance(LOCK)
    scene.intake = Intake(scene.options)
    with pytest.raises(BadSpool, match=r"has no batch 0, which the checkpoint needs: .* Start with a new checkpoint\."):
        scene.rows(end)
    scene.start = scene.intake.first()
    assert scene.all(2) == ["1", "2"]
    assert scene.left() == 0


def test_deleted_messages_do_not_wait_in_memory(amqp: Bus, tmp_path: Path) -> None:
    """In the mode receive_and_delete, the links receive more than the next batch may have. A death loses none."""
    scene = Scene(amqp, tmp_path, mode="receive_and_delete", receivers=3)
    scene.put("1", "2", "3", "4")
    end = scene.next(rows=1, together=4)
    assert len(scene.files()) == 4
    scene.die()
    # They are batches of their own, so the limit of rows holds.
    assert scene.next() == end
    found = [scene.batch() for _ in range(4)]
    assert sorted(found) == [["1"], ["2"], ["3"], ["4"]]
    scene.idle()
    assert scene.left() == 0
    scene.intake.close()


def test_the_key_is_replaced_while_a_stream_receives(
    amqp: Bus, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The file is empty for a moment, then it has a key that the broker does not know yet. The stream goes on."""
    file, good = tmp_path / "string", amqp.string()
    file.write_text(good)
    given = {"connection_string_file": str(file), "queue": amqp.queue(), "spool": str(tmp_path / "spool")}
    options = stream_options({**given, "wait": "100 milliseconds"})
    receivers = Receivers(options)
    assert receivers.receive(10, 1 << 20) == ([], True)
    for content in ("", good.replace("SharedAccessKey=", "SharedAccessKey=AAAA")):
        file.write_text(content)
        # The connection breaks, and the next one needs the file.
        receivers._start(receivers._close_all()).result()
        assert receivers.receive(10, 1 << 20) == ([], False)
        file.write_text(good)
        amqp.until(lambda: receivers.receive(10, 1 << 20) == ([], True), "it goes on")
    amqp.put(given["queue"], ServiceBusMessage("1"))
    assert len(received(receivers, 1).deliveries) == 1
    receivers.close()
    assert "it is empty. Trying again for 300 seconds" in caplog.text
    assert "InvalidSignature" in caplog.text
    assert "AAAA" not in caplog.text
    # A file or a key that never worked is refused at once.
    file.write_text("")
    receivers = Receivers(options)
    with pytest.raises(BadOption, match=r"Cannot read .* \(option 'connection_string_file'\): it is empty\.$"):
        receivers.receive(10, 1 << 20)
    receivers.close()


def test_locks_are_renewed(tmp_path: Path) -> None:
    with running_bus(tmp_path / "bus") as bus:
        queue = bus.queue(lock_duration=5 * SECOND)
        given = {"connection_string": bus.string(), "queue": queue, "spool": str(tmp_path / "spool")}
        bus.put(queue, ServiceBusMessage("1"))
        receivers = Receivers(stream_options(given))
        (delivery,) = received(receivers, 1).deliveries
        first = delivery.message.locked_until_utc
        assert first is not None
        bus.until(lambda: (delivery.message.locked_until_utc or first) > first, "the lock is renewed")
        assert receivers.complete([delivery.identity]).result() == [delivery.identity]
        receivers.close()


def test_a_broker_that_stays_away(tmp_path: Path) -> None:
    """Receiving finds nothing for `retry_timeout`, and then fails with one clear line."""
    with running_bus(tmp_path / "bus") as bus:
        queue = bus.queue()
        given = {"connection_string": bus.string(), "queue": queue, "spool": str(tmp_path / "spool")}
        receivers = Receivers(stream_options({**given, "wait": "100 milliseconds", "retry_timeout": "1 second"}))
        assert receivers.receive(10, 1 << 20) == ([], True)
    bus.until(lambda: receivers.receive(10, 1 << 20) == ([], False), "it notices")
    with pytest.raises(ServiceBusFailure) as raised:
        bus.until(lambda: receivers.receive(10, 1 << 20) != ([], False), "it gives up")
    receivers.close()
    assert str(raised.value).startswith(f"Receiving from queue '{queue}' at localhost:{bus.port} failed: ")
    assert "Connection refused" in str(raised.value)
    assert "\n" not in str(raised.value)
