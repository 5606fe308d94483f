"""A real `oncebus serve` for the connector's tests, and the official client as the other end."""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage
from pyspark.sql import DataFrame, SparkSession

from oncebus.broker.clock import wall_time
from oncebus.model.access import KeyFile, make_token
from oncebus.values.durations import SECOND
from tests.programs.serve.clients import Client, Running, kill_everything
from tests.programs.serve.programs import is_alive, until
from tests.programs.serve.services import service

PATIENCE = 90.0
DETECTS: dict[str, object] = {"RequiresDuplicateDetection": True, "DuplicateDetectionHistoryTimeWindow": "PT1H"}
QUICK: dict[str, object] = {"LockDuration": "PT5S", "MaxDeliveryCount": 2000}


class Bus:
    """The broker as the connector sees it. Each test creates its own entities."""

    def __init__(self, folder: Path, start: Callable[[], Running]) -> None:
        """Start the broker. `start` runs one that is ready, always at the same port and over the data in `folder`."""
        self._start = start
        self.running = start()
        self.url = self.running.ready()
        found = re.search(r"^Endpoint=\S+", self.running.out.read_text(), re.MULTILINE)
        assert found is not None, self.running.out.read_text()
        self.string = found[0]
        self.http = Client(self.url, folder / "data")
        self._keys = KeyFile(folder / "data" / "keys.json")

    def queue(self, name: str, **properties: object) -> str:
        """Create a queue."""
        status, text = self.http.put(name, properties)
        assert status == 201, text
        return name

    def options(self, **others: object) -> dict[str, str]:
        """Return the options of a DataFrame."""
        return {"connection_string": self.string, **{name: str(value) for name, value in others.items()}}

    def expired(self) -> str:
        """Return a connection string with a token that has expired."""
        rule, endpoint = self._keys.rules()[0], self.string.split(";")[0]
        token = make_token(endpoint.removeprefix("Endpoint="), rule.name, rule.primary_key, wall_time() - SECOND)
        return f"{endpoint};SharedAccessSignature={token};UseDevelopmentEmulator=true"

    def client(self) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(self.string)

    def send(self, queue: str, messages: Sequence[ServiceBusMessage]) -> None:
        """Send messages, and wait until receivers can get them: a stream that takes what is there takes them."""
        with self.client() as client, client.get_queue_sender(queue) as sender:
            sender.send_messages(list(messages))
        until(lambda: self._is_processed(queue), f"the pipeline has processed {queue}", limit=PATIENCE)

    def _is_processed(self, queue: str) -> bool:
        return self.http.metric("entity_pipeline_bytes", entity=queue) == 0

    def receive(self, queue: str, count: int) -> list[ServiceBusReceivedMessage]:
        """Receive and complete `count` messages, and check that no more come."""
        found: list[ServiceBusReceivedMessage] = []
        with self.client() as client, client.get_queue_receiver(queue) as receiver:
            while len(found) < count:
                some = receiver.receive_messages(count - len(found), max_wait_time=PATIENCE)
                assert some, f"{len(found)} of {count} came"
                for message in some:
                    receiver.complete_message(message)
                found += some
            assert receiver.receive_messages(1, max_wait_time=1) == []
        return found

    def emptied(self, queue: str, *, within: float = PATIENCE) -> None:
        """Wait until the broker has no message of a queue, locked or not, neither in its store nor under way."""

        def is_empty() -> bool:
            # In this order: a message under way comes into the store.
            return self._is_processed(queue) and self.http.metric("messages", entity=queue) == 0

        until(is_empty, f"{queue} is empty", limit=within)

    def kill(self) -> None:
        """Kill the gateway and the pipeline. The supervisor starts them again at the same ports."""
        for name in ("gateway", "pipeline"):
            with suppress(AssertionError, ProcessLookupError):
                pid = self.running.child(name)
                os.kill(pid, signal.SIGKILL)
                until(lambda pid=pid: not is_alive(pid), f"{name} is killed")  # type: ignore[misc]

    @contextmanager
    def away(self, *, killed: bool = False) -> Iterator[None]:
        """Stop or kill the whole broker for the block: nothing listens at its port. Then start it again."""
        try:
            if killed:
                kill_everything(self.running)
            else:
                assert self.running.stop() == 0
            yield
        finally:
            self.running = self._start()


def text(message: ServiceBusReceivedMessage) -> str:
    return b"".join(message.body).decode()


def messages(*numbers: int) -> list[ServiceBusMessage]:
    return [ServiceBusMessage(str(number), message_id=f"id-{number}") for number in numbers]


def texts(*numbers: int) -> list[str]:
    """Return the bodies of `messages`, in the order of `numbered`."""
    return sorted(map(str, numbers))


def numbered(frame: DataFrame) -> list[str]:
    """Return the bodies of received rows, in order."""
    return sorted(bytes(row["body"]).decode() for row in frame.select("body").collect())


def error_line(error: BaseException) -> str:
    """Return the line of ours in an error of Spark, from the name of its class on."""
    found = re.findall(r"oncebus\.[a-z.]*\.([A-Z]\w+: .*)", str(error))
    assert found, str(error)
    line: str = found[-1]
    return line


def stream(spark: SparkSession, bus: Bus, folder: Path, **options: object) -> DataFrame:
    """Return a stream with its spool in `folder`."""
    given = {"spool": folder / "spool", "wait": "500 milliseconds", **options}
    return spark.readStream.format("servicebus").options(**bus.options(**given)).load()


def drained(frame: DataFrame, folder: Path) -> list[str]:
    """Run a stream until nothing comes, into Parquet, and return the bodies of the output so far."""
    writer = frame.writeStream.format("parquet").option("path", str(folder / "out"))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    spark = frame.sparkSession
    return numbered(spark.read.schema(frame.schema).parquet(str(folder / "out")))


@contextmanager
def running_bus(folder: Path) -> Iterator[Bus]:
    """Run the broker for the block, with AMQP and HTTP at one port."""
    with _reserved_port() as port, ExitStack() as stack:

        def start() -> Running:
            running = stack.enter_context(service(folder, "service", options=["--port", str(port)]))
            running.ready()
            return running

        yield Bus(folder, start)


@contextmanager
def _reserved_port() -> Iterator[int]:
    """Reserve a port for the block, so that no other program gets it while the broker is away."""
    with socket.socket() as holder:
        # It does not listen, so connections are refused, and another socket with this option may listen there.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]
