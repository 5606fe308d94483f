"""Runs Go with the official client. The scenarios are compiled once, with Go's own runner, and run in one process."""

from __future__ import annotations

import json
import re
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from oncebus.model.access import connection_string

from . import suite
from .served import Served

HERE = Path(__file__).parent / "go"
AT_ONCE = 16
_SCENARIO = re.compile(r"^func (Test\w+)\(t \*testing\.T\)", re.MULTILINE)


def missing() -> str | None:
    """Return why nothing in Go can be run, or None."""
    return None if shutil.which("go") else "Go suite not run: go is not installed"


def scenarios() -> list[str]:
    """Return the names of all scenarios."""
    return [name for path in sorted(HERE.glob("*_test.go")) for name in _SCENARIO.findall(path.read_text())]


def program() -> Path:
    """Return the compiled scenarios."""
    with suite.made("go", sorted(HERE.iterdir())) as (folder, is_made):
        if not is_made:
            suite.build(HERE, "go", "vet", "-mod=readonly", ".")
            suite.build(HERE, "go", "test", "-c", "-mod=readonly", "-o", str(folder / "scenarios"), ".")
    return folder / "scenarios"


def results(lines: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    """Yield each scenario with its failure, if any, from the events of Go's test2json."""
    output: dict[str, str] = defaultdict(str)
    for line in lines:
        event = json.loads(line)
        name = event.get("Test")
        if name is None:
            continue
        output[name] += event.get("Output", "")
        if event["Action"] == "pass":
            yield name, None
        elif event["Action"] in ("fail", "skip"):
            yield name, output[name]


def running(
    served: Served, names: Sequence[str], entities: dict[str, list[str]], folder: Path
) -> AbstractContextManager[suite.Suite]:
    """Run scenarios for the block."""
    environment = suite.variables(served, entities) | {
        "SECURE": connection_string("localhost", served.amqps_port, served.root, emulator=False),
        "ADMINISTRATION": connection_string("localhost", served.https_port, served.root, emulator=False),
        "SSL_CERT_FILE": str(served.certificate),
    }
    chosen = f"-test.run=^({'|'.join(names)})$"
    words = [str(program()), "-test.v=test2json", f"-test.parallel={AT_ONCE}", chosen]
    return suite.running(["go", "tool", "test2json", *words], environment, names, results, folder / "go.log")
