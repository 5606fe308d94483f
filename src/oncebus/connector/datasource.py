"""The data source itself, which Spark knows as `format("servicebus")`."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import types as T
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from oncebus.connector.detecting import check_detection
from oncebus.connector.errors import BadColumn, BadOption, one_line
from oncebus.connector.options import SinkOptions, peek_options, sink_options
from oncebus.connector.peeking import BatchSource
from oncebus.connector.rows import check_columns
from oncebus.connector.schema import SCHEMA
from oncebus.connector.sink import BatchSink, StreamSink
from oncebus.connector.stream import StreamSource

FORMAT = "servicebus"
_REDACTED = "spark.sql.redaction.options.regex"
_SECRET = "connection_string"


class ServiceBusDataSource(DataSource):
    """Azure Service Bus and Oncebus as a data source of Spark."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return FORMAT

    def schema(self) -> T.StructType:
        """Return the columns of a received message."""
        return SCHEMA

    @one_line()
    def reader(self, schema: T.StructType) -> DataSourceReader:
        """Return the reader of a batch. Raises `BadOption` or `BadColumn`."""
        difference = _difference(schema)
        if difference is not None:
            raise BadColumn(difference)
        return BatchSource(peek_options(self.options))

    def streamReader(self, schema: T.StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the reader of a stream. It checks the options when Spark asks it for an offset.

        An error that is raised here does not reach the user: Spark then tries to stop the reader that it does not have.
        """
        return StreamSource(self.options, _difference(schema))

    @one_line()
    def writer(self, schema: T.StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch. Raises `BadOption` or `BadColumn`."""
        if overwrite:
            raise BadOption("Messages cannot be overwritten: write with mode('append').")
        return BatchSink(self._sink_options(schema))

    @one_line()
    def streamWriter(self, schema: T.StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return the writer of a stream. Raises `BadOption` or `BadColumn`."""
        if overwrite:
            raise BadOption("Messages cannot be overwritten: use outputMode('append') or outputMode('update').")
        return StreamSink(self._sink_options(schema))

    def _sink_options(self, schema: T.StructType) -> SinkOptions:
        check_columns(schema)
        options = sink_options(self.options)
        check_detection(options)
        return options


def register(spark: SparkSession) -> None:
    """Make `format("servicebus")` known to a session, and let Spark hide connection strings in plans."""
    spark.dataSource.register(ServiceBusDataSource)
    pattern = spark.conf.get(_REDACTED) or ""
    if _SECRET not in pattern:
        spark.conf.set(_REDACTED, f"{pattern}|{_SECRET}" if pattern else f"(?i){_SECRET}")


def _difference(schema: T.StructType) -> str | None:
    """Return the error if a schema is not the one of a message."""
    if schema.names == SCHEMA.names and [field.dataType for field in schema] == [field.dataType for field in SCHEMA]:
        return None
    return "The columns of a message are fixed: read without .schema(…), and select the ones you need."
