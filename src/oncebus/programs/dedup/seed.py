"""`oncebus ledger seed`: makes a ledger remember what tables hold."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import reduce
from typing import Any

import click
from pyspark.sql import DataFrame, SparkSession

from oncebus.programs.dedup.progress import display, speed
from oncebus.programs.dedup.session import spark_session
from oncebus.spark import Ledger
from oncebus.spark.seeding import seed_ledger
from oncebus.values.durations import spelt_out

_NAMED_BY_ARGUMENTS = ("parquet", "orc")
"""Formats whose files and settings determine the rows. Spark has no hash of such a query that a new process finds."""


def run_seed(
    location: str,
    tables: Sequence[str],
    format_name: str,
    master: str | None,
    settings: Mapping[str, str],
    options: dict[str, Any],
    *,
    as_json: bool,
) -> None:
    """Seed the ledger from the union of the tables, and print what it remembers. `options` are those of the call."""
    ledger = Ledger.open(location)
    for name in ("window", "lateness"):
        if options[name] is not None:
            options[name] = spelt_out(options[name])
    query = json.dumps([format_name, tables, dict(settings)]) if format_name in _NAMED_BY_ARGUMENTS else None
    with display() as shown, spark_session(master, settings) as spark:
        shown.count_from_here()
        shown.phase("reading the schema")
        rows = reduce(DataFrame.unionByName, [_read(spark, table, format_name) for table in tables])
        shown.phase("remembering")
        with shown.watching(spark):
            seeded = seed_ledger(ledger, rows, query=query, **options)
        seconds = shown.seconds
    if as_json:
        click.echo(json.dumps({"ledger": ledger.location, **asdict(seeded), **speed(seeded.rows, seconds, seconds)}))
    else:
        click.echo(f"{seeded}. {ledger.summary()}.")


def _read(spark: SparkSession, table: str, format_name: str) -> DataFrame:
    return spark.table(table) if format_name == "table" else spark.read.format(format_name).load(table)
