"""The page of the connector: its tables agree with the code, and its programs run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from azure.servicebus import ServiceBusMessage
from pyspark.sql import SparkSession

from oncebus.connector.options import OPTIONS, Use
from oncebus.connector.rows import SINK_COLUMNS
from oncebus.connector.schema import SCHEMA
from tests.docs.pages import blocks, page

from .bus import DETECTS, Bus, numbered

PAGE = "reference/connector.md"


def table(heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading, without its own heading."""
    section = page(PAGE).partition(f"\n## {heading}\n")[2]
    found = re.search(r"((?:^\|.*\n)+)", section, re.MULTILINE)
    assert found is not None
    return [[cell.strip().strip("`") for cell in line.split("|")[1:-1]] for line in found[1].splitlines()[2:]]


def test_the_options_are_those_of_the_code() -> None:
    expected = [
        [option.name, "all" if len(option.uses) == len(Use) else ", ".join(option.uses), option.default or ""]
        for option in OPTIONS
    ]
    assert [row[:3] for row in table("Options")] == expected


def test_the_written_columns_are_those_of_the_code() -> None:
    assert table("Columns that are written") == [[column.name, column.types] for column in SINK_COLUMNS]


def test_the_read_columns_are_those_of_the_code() -> None:
    expected = [[field.name, field.dataType.simpleString()] for field in SCHEMA]
    assert [row[:2] for row in table("Columns that are read")] == expected


def test_the_programs_run(session: SparkSession, bus: Bus, tmp_path: Path) -> None:
    bus.queue("orders", **DETECTS)
    (tmp_path / "servicebus").write_text(bus.string)
    (tmp_path / "orders").mkdir()
    rows = [f'{{"id": "{number}", "customer": "c", "total": 1.5}}' for number in range(5)]
    (tmp_path / "orders" / "1.json").write_text("\n".join(rows))
    sink, source = (block.text for block in blocks(PAGE) if block.language == "python")
    for program in (sink, source):
        code = program.replace("/etc/oncebus/servicebus", str(tmp_path / "servicebus")).replace("/data", str(tmp_path))
        names: dict[str, Any] = {}
        exec(compile(code, PAGE, "exec"), names)
        if program is sink:
            bus.send("orders", [ServiceBusMessage('{"id":"other"}')])
    found = numbered(session.read.parquet(str(tmp_path / "table")))
    assert found == sorted(['{"id":"other"}', *(row.replace(": ", ":").replace(", ", ",") for row in rows)])
