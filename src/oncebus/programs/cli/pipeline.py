"""`oncebus pipeline`: runs the Spark pipeline alone, without the gateway."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from oncebus.programs.cli.errors import in_one_line
from oncebus.programs.cli.serve import settings_of, settings_options
from oncebus.values import disk

log = logging.getLogger(__name__)

_EXAMPLE = "oncebus pipeline --data /shared/oncebus --master spark://head:7077"
_ONLY_OF_THE_GATEWAY = (
    "host",
    "token_host",
    "port",
    "http_port",
    "amqp_port",
    "amqps_port",
    "metrics_port",
    "metrics_rule",
    "tier",
    "namespace",
    "key_file",
    "inbox_limit",
    "drop_record",
    "longest_window",
    "lag_limit",
    "heartbeat_limit",
    "config",
    "config_json",
    "emulator",
    "insecure_emulator",
    "ephemeral",
    "tls",
    "tls_cert",
    "tls_key",
)

SPARK_LOG = "spark.log"
LARGEST_LOG = 16 << 20


@click.command(short_help="Run the Spark pipeline alone, for a cluster.", epilog=f"Example: {_EXAMPLE}")
@settings_options(*_ONLY_OF_THE_GATEWAY)
@click.option("--parent", type=int, hidden=True)
@click.option("--record-classes", is_flag=True, hidden=True)
def pipeline(settings_file: str | None, parent: int | None, record_classes: bool, **given: Any) -> None:
    """Run the pipeline over a data folder that it shares with `oncebus gateway`.

    Spark's own output goes to spark.log in that folder. You can kill the pipeline at any moment: the next start
    continues where it stopped.
    """
    settings = settings_of(given, settings_file)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    from oncebus.engine.folders import Folders
    from oncebus.pipeline.process import run_pipeline
    from oncebus.pipeline.query import pipeline_session
    from oncebus.programs.serve.checks import make_data_folder
    from oncebus.spark.starting import SparkStartError, output_to, quiet_py4j, start_failure, work_beside_pyspark

    quiet_py4j()
    make_data_folder(settings.data, settings.data_access)
    data = settings.data.absolute()
    spoken = data / SPARK_LOG
    cache = settings.cache.absolute() if settings.cache is not None else None
    work_beside_pyspark()

    def quiet_session(master: str, java_options: Sequence[str]) -> SparkSession:
        _rotate_if_large(spoken)
        try:
            with output_to(spoken):
                return pipeline_session(master, java_options, insecure_cluster=settings.insecure_cluster)
        except (PySparkRuntimeError, OSError) as error:
            raise SparkStartError(start_failure(spoken, error)) from error

    try:
        run_pipeline(
            Folders(data),
            master=settings.master,
            shards=settings.shards,
            parent=parent,
            cache=cache,
            record=record_classes,
            session=quiet_session,
        )
    except Exception as error:
        if parent is None:
            raise
        # `serve` started this process and shows its log, so the error must be there.
        log.error("The pipeline failed: %s", in_one_line(error))
        sys.exit(1)


def _rotate_if_large(spoken: Path) -> None:
    """Rename a large log to `spark.log.1`, replacing the previous one, so that Spark starts a new file."""
    with suppress(OSError):
        if spoken.stat().st_size > LARGEST_LOG:
            disk.replace(spoken, spoken.with_name(f"{spoken.name}.1"))
