"""The sending of a task, without Spark: batches at the limit, partitions, a busy broker, and errors of one line."""

from __future__ import annotations

import gc
import itertools
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient
from pyspark.sql.datasource import InputPartition

from oncebus.broker import admission
from oncebus.broker.addresses import parse_address
from oncebus.broker.clock import wall_time
from oncebus.broker.errors import ServerBusy
from oncebus.broker.sending import Incoming, check
from oncebus.connector import attempts, endpoints
from oncebus.connector.detecting import check_detection
from oncebus.connector.endpoints import Access
from oncebus.connector.errors import BadRow, ServiceBusFailure
from oncebus.connector.ids import Ids
from oncebus.connector.options import Entity, PeekOptions, SinkOptions
from oncebus.connector.peeking import BatchSource
from oncebus.connector.rows import message_from
from oncebus.connector.sending import MOST_MESSAGES, Placed, Sending
from oncebus.model.access import make_token
from oncebus.model.entities import Namespace, Queue, Tier, Topic
from oncebus.model.entities.errors import InvalidOperation, QuotaExceeded
from oncebus.values.durations import SECOND
from tests.protocols.servicebus.bus import PATIENCE, ROOT, Bus, running_bus

Row = dict[str, object]
ATTEMPTS = ("servicebus-attempt", "servicebus-closing")


@pytest.fixture(scope="module")
def amqp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bus]:
    with running_bus(tmp_path_factory.mktemp("amqp")) as bus:
        yield bus
    # Abandoned attempts end when their connection breaks.
    bus.until(lambda: not any(each.name in ATTEMPTS for each in threading.enumerate()), "attempts end")
    gc.collect()


def placed(rows: Sequence[Row], batch: int = 0) -> Iterator[Placed]:
    """Return the messages of a partition's rows, as the sink makes them."""
    ids = Ids(("stream", "query", str(batch)), "query")
    for position, row in enumerate(rows):
        place = f"row {position} of partition 0"
        yield Placed(message_from(row, str(row.get("message_id") or ids.next_for(row)), place), place)


def send(bus: Bus, queue: str, rows: Sequence[Row], *, string: str | None = None, patience: float = 30) -> int:
    with Sending(Access(connection_string=string or bus.string()), Entity(queue), patience) as sending:
        return sending.send_all(placed(rows))


class Calls:
    """The sends that reach the broker, with the number of messages in each, and how it refuses them."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, refuse: Callable[[Sequence[Incoming]], Exception | None]
    ) -> None:
        self.sizes: list[int] = []
        self.refused = 0
        self._newest: Incoming | None = None

        def checked(entity: Queue | Topic, namespace: Namespace, messages: Sequence[Incoming]) -> int:
            error = refuse(messages)
            if error is not None:
                self.refused += 1
                raise error
            # The broker checks some sends again before it accepts them.
            if messages[0] is not self._newest:
                self.sizes.append(len(messages))
            self._newest = messages[0]
            return check(entity, namespace, messages)

        monkeypatch.setattr(admission, "check", checked)


def times(count: int, error: Exception) -> Callable[[Sequence[Incoming]], Exception | None]:
    left = [error] * count
    return lambda messages: left.pop() if left else None


@pytest.mark.parametrize("error", [ServerBusy("The server is busy."), QuotaExceeded("The queue is full.")])
def test_a_busy_broker_and_a_full_queue_are_waited_for(
    amqp: Bus, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    queue = amqp.queue(requires_duplicate_detection=True)
    calls = Calls(monkeypatch, times(2, error))
    assert send(amqp, queue, [{"body": f"{number:03}"} for number in range(5)]) == 5
    assert calls.refused == 2
    assert sorted(body[-3:] for _, body in amqp.take(queue, 5)) == [b"%03d" % number for number in range(5)]
    warnings = [record.getMessage() for record in caplog.records if record.name == "oncebus.connector"]
    assert len(warnings) == 1
    assert str(error) in warnings[0]
    assert warnings[0].endswith("Trying again for 30 seconds.")


def test_a_broker_that_stays_busy(amqp: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = amqp.queue()
    Calls(monkeypatch, lambda messages: ServerBusy("The server is busy."))
    with pytest.raises(ServiceBusFailure, match=f"^Sending to queue '{queue}' at .* failed: The server is busy"):
        send(amqp, queue, [{"body": "a"}], patience=0.1)


def test_a_batch_is_as_large_as_the_broker_takes_and_no_larger(amqp: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = amqp.queue()
    calls = Calls(monkeypatch, lambda messages: None)
    rows: list[Row] = [{"body": "x" * 20_000 + f"{number:03}"} for number in range(40)]
    assert send(amqp, queue, rows) == 40
    # 256 KB hold 13 of them, together with their properties.
    assert calls.sizes == [13, 13, 13, 1]
    assert [body[-3:] for _, body in amqp.take(queue, 40)] == [b"%03d" % number for number in range(40)]


def test_a_message_that_is_too_large_names_its_row(amqp: Bus) -> None:
    queue = amqp.queue()
    rows: list[Row] = [{"body": "a"}, {"body": "b" * 300_000, "message_id": "big"}, {"body": "c"}]
    with pytest.raises(BadRow) as raised:
        send(amqp, queue, rows)
    start = f"The message of row 1 of partition 0 (message_id 'big') is too large. Sending to queue '{queue}' at "
    assert str(raised.value).startswith(start)
    assert "\n" not in str(raised.value)
    # What comes before it is sent, and stays. The write that repeats it adds only the missing ones.
    assert [body[-1:] for _, body in amqp.take(queue, 1)] == [b"a"]


def test_batches_where_single_messages_may_be_larger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Premium a message may have 100 MB, but a batch only 1 MB and 4,500 messages."""
    with running_bus(tmp_path, tier=Tier.PREMIUM) as bus:
        queue = bus.queue(max_message_size_in_kilobytes=4096)
        calls = Calls(monkeypatch, lambda messages: None)
        rows: list[Row] = [{"body": "x" * size} for size in (400_000, 400_000, 400_000, 3_000_000)]
        assert send(bus, queue, rows) == 4
        assert calls.sizes == [2, 1, 1]
        del calls.sizes[:]
        assert send(bus, queue, [{"body": "", "message_id": str(number)} for number in range(MOST_MESSAGES + 1)])
        assert calls.sizes == [MOST_MESSAGES, 1]
        assert len(bus.take(queue, MOST_MESSAGES + 5)) == MOST_MESSAGES + 5


def refuses_mixes(messages: Sequence[Incoming]) -> Exception | None:
    """Refuse as Azure does for a partitioned entity with duplicate detection."""
    if len({message.session or message.partition_key or message.message_id for message in messages}) == 1:
        return None
    return InvalidOperation(
        "Batching brokered messages with distinct SessionId, PartitionKey, or MessageId is not supported for an entity "
        "with partitioning and duplicate detection enabled."
    )


KEYS = [*("key-0", "key-1") * 3, "one", "one", "one"]
MIXED: list[Row] = [{"body": str(number), "partition_key": key} for number, key in enumerate(KEYS)]
MIXED += [{"body": "same", "partition_key": key} for key in ("key-0", "key-1", None)]
MIXED += [{"body": str(number)} for number in range(2)]


@pytest.mark.parametrize("is_strict", [False, True])
def test_a_partitioned_queue(amqp: Bus, monkeypatch: pytest.MonkeyPatch, is_strict: bool) -> None:
    """The id there is MessageId and PartitionKey. A repeated task sends nothing twice, and no row is lost."""
    queue = amqp.queue(enable_partitioning=True, requires_duplicate_detection=True)
    calls = Calls(monkeypatch, refuses_mixes if is_strict else lambda messages: None)
    for _ in range(2):
        assert send(amqp, queue, MIXED) == len(MIXED)
    assert calls.refused == (2 if is_strict else 0)
    # Only messages with the same key that follow each other are sent together.
    assert calls.sizes == 2 * ([1] * 6 + [3] + [1] * 5 if is_strict else [len(MIXED)])
    found = amqp.take(queue, len(MIXED))
    assert Counter(message.partition_key for message, _ in found) == Counter(row.get("partition_key") for row in MIXED)
    assert len({message.message_id for message, _ in found}) == len(MIXED)
    assert amqp.run(amqp.broker.receive(parse_address(queue), 1, wait=0.2)) == []


@pytest.mark.parametrize("is_strict", [False, True])
def test_a_partitioned_queue_with_sessions(amqp: Bus, monkeypatch: pytest.MonkeyPatch, is_strict: bool) -> None:
    queue = amqp.queue(enable_partitioning=True, requires_duplicate_detection=True, requires_session=True)
    calls = Calls(monkeypatch, refuses_mixes if is_strict else lambda messages: None)
    rows: list[Row] = [{"body": f"{number:03}", "session_id": f"session-{number // 4}"} for number in range(12)]
    for _ in range(2):
        assert send(amqp, queue, rows) == 12
    assert calls.sizes == 2 * ([4, 4, 4] if is_strict else [12])
    for session in range(3):
        receiver = amqp.receiver(queue, session_id=f"session-{session}")
        bodies: list[bytes] = []
        while len(bodies) < 4:
            bodies += [b"".join(message.body) for message in receiver.receive_messages(10, max_wait_time=PATIENCE)]
        assert bodies == [b"%03d" % number for number in range(4 * session, 4 * session + 4)]


def test_another_refusal_of_a_batch_is_an_error(amqp: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = amqp.queue()
    Calls(monkeypatch, lambda messages: InvalidOperation("It is not allowed."))
    for rows in ([{"body": "a"}, {"body": "b"}], [{"body": "a", "partition_key": "k"}] * 2):
        with pytest.raises(ServiceBusFailure, match="failed: It is not allowed"):
            send(amqp, queue, rows)  # type: ignore[arg-type]


def test_errors_are_one_clear_line(amqp: Bus) -> None:
    queue = amqp.queue()

    def error(entity: str = queue, string: str | None = None) -> str:
        with pytest.raises(ServiceBusFailure) as raised:
            send(amqp, entity, [{"body": "a"}], string=string, patience=0.1)
        assert "\n" not in str(raised.value)
        return str(raised.value)

    missing = error("nope")
    assert missing.startswith(f"Sending to queue 'nope' at localhost:{amqp.port} failed: ")
    assert "The messaging entity 'sb://localhost/nope' could not be found." in missing
    endpoint = f"Endpoint=sb://localhost:{amqp.port}/"
    token = make_token(f"sb://localhost:{amqp.port}/", ROOT.name, ROOT.primary_key, wall_time() - SECOND)
    expired = error(string=f"{endpoint};SharedAccessSignature={token};UseDevelopmentEmulator=true")
    assert "ExpiredToken" in expired
    assert expired.endswith("Check the connection string or credential, and its rights.")
    wrong = error(string=amqp.string().replace("SharedAccessKey=", "SharedAccessKey=AAAA"))
    assert "InvalidSignature: The token has an invalid signature." in wrong
    assert "Connection refused" in error(string=amqp.string().replace(str(amqp.port), "9"))


def test_a_broker_that_does_not_answer(amqp: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Something accepts the connection and stays silent, as a broker that is stopped."""
    monkeypatch.setattr(attempts, "LONGEST_ATTEMPT", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        string = amqp.string().replace(str(amqp.port), str(silent.getsockname()[1]))
        with pytest.raises(
            ServiceBusFailure, match=r"^Sending to queue 'a' at localhost:.* failed: There is no answer in time"
        ):
            send(amqp, "a", [{"body": "a"}], string=string, patience=0.1)


def test_a_file_with_the_connection_string_that_cannot_be_read(
    amqp: Bus, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is on a disk that does not answer. No attempt waits for ever, although none gets as far as the broker."""
    goes_on, read = threading.Event(), endpoints._text_of

    def hang(path: str) -> str:
        goes_on.wait(PATIENCE)
        return read(path)

    monkeypatch.setattr(endpoints, "_text_of", hang)
    monkeypatch.setattr(attempts, "LONGEST_ATTEMPT", 0.1)
    access = Access(file=str(tmp_path / "string"))
    try:
        with (
            Sending(access, Entity("a"), 0.1) as sending,
            pytest.raises(ServiceBusFailure, match=r"^Sending to queue 'a' failed: There is no answer in time\.$"),
        ):
            sending.send_all(placed([{"body": "a"}]))
        with pytest.raises(
            ServiceBusFailure, match=r"^Reading the connection string for queue 'a' failed: There is no"
        ):
            attempts.resolve_access(access, Entity("a"))
        with pytest.raises(ServiceBusFailure, match=r"^Peeking at queue 'a' failed: There is no answer in time\.$"):
            list(BatchSource(PeekOptions(access, Entity("a"), 0.1, 10)).read(InputPartition(None)))
        options = SinkOptions(access, Entity("a"), 0.1, None, requires_detection=True, administration_url=None)
        with pytest.raises(
            ServiceBusFailure, match=r"^Reading the connection string for queue 'a' failed: There is no"
        ):
            check_detection(options)
    finally:
        goes_on.set()


def test_the_key_is_replaced_while_a_task_sends(
    amqp: Bus, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """First the file is empty for a moment, then it has a key that the broker does not know yet. Both pass."""
    queue, file = amqp.queue(), tmp_path / "string"
    good = amqp.string()
    contents = [good.replace("SharedAccessKey=", "SharedAccessKey=AAAA"), good]

    def pauses(limit: float) -> Iterator[float]:
        for content in contents:
            file.write_text(content)
            yield 0.0

    monkeypatch.setattr(attempts, "pauses", pauses)

    def messages() -> Iterator[Placed]:
        first, second = placed([{"body": "1"}, {"body": "2", "message_id": "two"}])
        yield first
        # The connection breaks, and the next one needs the file.
        file.write_text("")
        sending._abandon()
        yield second

    file.write_text(good)
    with Sending(Access(file=str(file)), Entity(queue), PATIENCE) as sending:
        assert sending.send_all(messages()) == 2
    assert len(amqp.take(queue, 2)) == 2
    assert "(option 'connection_string_file'): it is empty. Trying again" in caplog.text
    # A key that never worked is refused at once.
    file.write_text(contents[0])
    with (
        Sending(Access(file=str(file)), Entity(queue), PATIENCE) as sending,
        pytest.raises(ServiceBusFailure) as raised,
    ):
        sending.send_all(placed([{"body": "3"}]))
    assert "InvalidSignature" in str(raised.value)
    assert "AAAA" not in str(raised.value) + caplog.text


def test_an_abandoned_attempt_changes_nothing_for_the_next(amqp: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first attempt hangs while it opens a connection, and goes on when the second one has its own."""
    queue, goes_on = amqp.queue(), threading.Event()
    made: list[ServiceBusClient] = []
    closed: list[ServiceBusClient] = []
    calls = itertools.count()
    open_client, close_client = Access.client, ServiceBusClient.close

    def client(access: Access) -> ServiceBusClient:
        if next(calls) == 0:
            assert goes_on.wait(PATIENCE)
        made.append(open_client(access))
        return made[-1]

    def close(client: ServiceBusClient) -> None:
        closed.append(client)
        close_client(client)

    def pauses(limit: float) -> Iterator[float]:
        # Only the first attempt is short.
        monkeypatch.setattr(attempts, "LONGEST_ATTEMPT", PATIENCE)
        yield 0.0

    def messages() -> Iterator[Placed]:
        yield from placed([{"body": "a"}])
        # By now the second attempt has succeeded.
        goes_on.set()
        amqp.until(lambda: not any(each.name in ATTEMPTS for each in threading.enumerate()), "it ends")

    monkeypatch.setattr(Access, "client", client)
    monkeypatch.setattr(ServiceBusClient, "close", close)
    monkeypatch.setattr(attempts, "LONGEST_ATTEMPT", 0.1)
    monkeypatch.setattr(attempts, "pauses", pauses)
    with Sending(Access(connection_string=amqp.string()), Entity(queue), PATIENCE) as sending:
        assert sending.send_all(messages()) == 1
        second, first = made
        # The abandoned attempt has closed its own connection, and the other one is in use.
        assert closed == [first]
    assert closed == [first, second]
    assert len(amqp.take(queue, 1)) == 1
