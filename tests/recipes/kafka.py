"""Runs a Kafka broker, which is its own controller (KRaft), and a producer."""

from __future__ import annotations

import base64
import subprocess
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import maven
from tests.clients import suite
from tests.clients.java import QUICK
from tests.cluster import free_port

from .orders import Order

HERE = Path(__file__).parent

_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/log
log.retention.ms=-1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""
# The orders of the tests have old timestamps: Kafka would delete them after its usual seven days.


class Kafka:
    """A running broker with a producer."""

    def __init__(self, address: str, producer: subprocess.Popen[str], logs: list[Path]) -> None:
        self.address = address
        self._producer = producer
        self._logs = logs

    def topic(self, name: str, partitions: int) -> None:
        """Create a topic."""
        self._do([f"topic\t{name}\t{partitions}"])

    def send(self, topic: str, orders: Iterable[Order]) -> None:
        """Send orders with their ids as keys, and wait until Kafka has them."""
        self._do([*(f"send\t{topic}\t{each.id}\t{each.milliseconds}\t{each.body}" for each in orders), "flush"])

    def _do(self, lines: Iterable[str]) -> None:
        assert self._producer.stdin is not None
        assert self._producer.stdout is not None
        self._producer.stdin.write("".join(f"{line}\n" for line in lines))
        self._producer.stdin.flush()
        answer = self._producer.stdout.readline()
        assert answer == "done\n", "\n".join(log.read_text()[-3000:] for log in self._logs)


@contextmanager
def running_kafka(folder: Path) -> Iterator[Kafka]:
    """Run a broker with an empty log, at a free port, for the block."""
    java = ["java", *QUICK, "-cp", f"{maven.libraries('recipes/broker', HERE / 'broker')}/*"]
    port, controller = free_port(), free_port()
    address = f"127.0.0.1:{port}"
    settings = folder / "server.properties"
    settings.write_text(_SETTINGS.format(port=port, controller=controller, folder=folder))
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    suite.build(folder, *java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings))
    logs = [folder / "broker.log", folder / "producer.log"]
    with logs[0].open("w") as broker_log, logs[1].open("w") as producer_log:
        broker = subprocess.Popen(
            [*java, "kafka.Kafka", str(settings)], stdin=subprocess.DEVNULL, stdout=broker_log, stderr=broker_log
        )
        producer = subprocess.Popen(
            [*java, str(HERE / "Producer.java"), address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=producer_log,
            text=True,
        )
        try:
            yield Kafka(address, producer, logs)
        finally:
            producer.kill()
            producer.communicate()
            broker.kill()
            broker.wait()
