"""A broker for the tests of programs that use Azure Service Bus: ready in a second, and reset between tests.

With pytest, use the fixture `oncebus`. Elsewhere:

    with run_broker(["orders"]) as broker:
        ServiceBusClient.from_connection_string(broker.connection_string)

By default everything runs in the process of the tests, the pipeline too, without Spark and Java: the same source,
detection, routing and ledger. It is a broker for tests alone: `oncebus serve` always runs Spark.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from oncebus.values.errors import OncebusError
from oncebus.values.extras import explain_missing

if TYPE_CHECKING:
    from oncebus.testing.broker import Broker, Entities

__all__ = ["BrokerFailed", "run_broker"]


class BrokerFailed(OncebusError):
    """The broker does not work any more, or its pipeline does not."""


def run_broker(*entities: Entities, spark: bool = False) -> AbstractContextManager[Broker]:
    """Run a broker with these entities on a free port of this machine. It is ready when the block begins.

    `entities` are as for `Broker.entities`. With `spark`, the pipeline is the real one: a process with Spark, which
    needs Java and takes some seconds to start.
    """
    # Whoever only has the plugin installed must not wait for these imports.
    try:
        from oncebus.testing.broker import start
    except ModuleNotFoundError as error:
        raise explain_missing(error, "oncebus.testing") from None
    return start(entities, spark)
