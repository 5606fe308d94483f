"""Azure Service Bus and Oncebus as a source and a sink of Spark: `format("servicebus")`.

The package needs neither the broker nor the portal. It uses the official client, azure-servicebus:
`pip install 'oncebus[connector]'`. The contract of the sink is in `oncebus.connector.ids`, the one of the streaming
source in `oncebus.connector.stream`.
"""

from importlib.util import find_spec

from oncebus.values.errors import OncebusError

if find_spec("azure") is None or find_spec("azure.servicebus") is None:
    raise OncebusError("The connector needs the package azure-servicebus: pip install 'oncebus[connector]'")
if find_spec("pyspark.sql.streaming.datasource") is None:
    raise OncebusError("The connector needs PySpark 4.2 or later: pip install 'oncebus[spark]'")

from oncebus.connector.datasource import FORMAT, ServiceBusDataSource, register

__all__ = ["FORMAT", "ServiceBusDataSource", "register"]
