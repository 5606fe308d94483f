"""`oncebus ledger show` and `check`. `tests/ledger` tests what they do."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

from oncebus.detection import Rows
from oncebus.detection.hashing import digests_of_keys
from oncebus.ledger import Generation, Ledger, Memory, Owner, Sighting
from oncebus.ledger.overview import Day
from oncebus.ledger.overview_texts import day_rows
from oncebus.programs.cli import main
from oncebus.programs.cli.ledger_texts import sightings_text
from tests.histories import SECOND, START, YEAR
from tests.ledger.owners import HERE
from tests.ledger.test_asides import Checkpoint, batch_of_stream, open_aside
from tests.ledger.test_check import flip, state
from tests.ledger.test_forgetting import accepted
from tests.ledger.test_ledger_properties import eager


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["ledger", *words])
    assert "Traceback" not in result.output
    return result.exit_code, result.output


def run_json(*words: str) -> Any:
    code, output = run(*words, "--json")
    assert (code, output.count("\n")) == (0, 1)
    return json.loads(output)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Return a ledger with three batches, of two ids each."""
    ledger = Ledger.open(tmp_path / "ledger")
    for number in range(3):
        accepted(ledger, [f"k{number}", f"kk{number}"], START + number * SECOND)
    return ledger.location


def test_show(path: str) -> None:
    before = state(path)
    code, output = run("show", path)
    assert code == 0
    lines = [line.strip("│ \n") for line in output.splitlines()]
    cells = [line.split("│") for line in lines if line.count("│") == 1]
    rows = {name.strip(): value.strip() for name, value in cells}
    assert rows["key"] == "id string"
    assert rows["holds"] == "6 ids in 6 runs, 0.0 MB"
    assert rows["parts"] == "2"
    assert rows["seen up to"] == "2023-11-14T22:13:22Z"
    assert rows["times"] == "2023-11-14T22:13:20Z to 2023-11-14T22:13:22Z"
    assert rows["last writer"].startswith(f"a batch, process {os.getpid()}, which is alive; wrote at 20")
    assert (rows["past their window"], rows["tombstones"]) == ("0", "0")
    [day] = [line for line in lines if line.startswith("2023-11-14 ")]
    assert [cell.strip() for cell in day.split("│")] == ["2023-11-14", "6", "0.7 kB"]
    assert state(path) == before


def test_show_as_json(path: str) -> None:
    found = run_json("show", path)
    assert (found["ledger"], found["key"], found["ids"], found["runs"]) == (path, ["id string"], 6, 6)
    assert found["windows_seconds"] == [600.0]
    assert (found["parts"], found["has_lanes"], found["horizon"]) == ([2], False, "2023-11-14T22:13:22Z")
    assert [(day["day"], day["ids"]) for day in found["days"]] == [("2023-11-14", 6)]
    writer = {"generation": 3, "query": None, "is_aside": False, "process": os.getpid(), "is_alive": True}
    assert found["last_writer"] == found["belongs_to"] == writer
    secret = json.loads(Path(path, "ledger.json").read_text())["secret"]
    assert secret not in json.dumps(found)
    assert secret not in run("show", path)[1]


def test_show_who_writes(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger")
    ledger.describe_or_check(["key string"])
    assert "last writer" not in run("show", ledger.location)[1]
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    batch_of_stream(ledger, checkpoint, 0, "a")
    assert f"query query, process {os.getpid()}, which is alive; wrote" in run("show", ledger.location)[1]
    aside = open_aside(ledger, checkpoint, "x")
    output = run("show", ledger.location)[1]
    assert "1, open or died" in output
    assert "1 file, 0.1 kB, of a batch that is open or died" in output
    aside.commit()
    output = run("show", ledger.location)[1]
    assert "belongs to" in output
    assert "a batch beside the query, process" in output
    number = ledger.listing().next_number
    for at, (query, owner, text) in enumerate(
        [
            (
                "foreach orders",
                Owner("another machine", 5, "0"),
                "foreachBatch of query 'orders', process 5 on another",
            ),
            ("q", Owner.remote_session("s"), "query q, a session of Spark Connect"),
            ("q", None, "query q, an unknown process"),
        ]
    ):
        ledger.claim(Generation(number + at, f"{at}", query, 0, 1, 0, owner))
        assert text in run("show", ledger.location)[1]


def test_show_a_key(path: str) -> None:
    Ledger.open(path).forget(["kk1"])
    code, output = run("show", path, "--key", "k0", "--key", "kk1", "--key", "no\x1bne")
    assert code == 0
    assert output.splitlines() == [
        "k0: remembered: new at 2023-11-14T22:13:20Z, until the ledger has seen 2023-11-14T22:23:20Z.",
        "kk1: not remembered: new at 2023-11-14T22:13:21Z, forgotten on request.",
        "no\\x1bne: not known: never seen, or over and deleted.",
    ]
    assert run_json("show", path, "--key", "k0", "--key", "none")["keys"] == [
        {
            "key": "k0",
            "is_remembered": True,
            "seen": [
                {
                    "time": "2023-11-14T22:13:20Z",
                    "sequence": None,
                    "until": "2023-11-14T22:23:20Z",
                    "memory": "remembered",
                }
            ],
        },
        {"key": "none", "is_remembered": False, "seen": []},
    ]


def test_show_a_key_of_several_columns(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger")
    ledger.describe_or_check(["id string", "line int"], has_secret=True)
    high, low, has_key = digests_of_keys([pa.array(["a"]), pa.array([3], pa.int32())], ledger.secret())
    window = np.array([SECOND])
    rows = Rows(high, low, has_key, np.array([START + 7]), window, window, np.array([42]), np.arange(1).__getitem__)
    with ledger.batch() as batch:
        batch.begin(lambda _: False, HERE)
        ledger.judge(rows, batch.generation, batch.number, part=0, parts=1, clock=2**62)
    text = (
        "remembered: new at 2023-11-14T22:13:20.000007Z, sequence number 42, until the ledger has seen "
        "2023-11-14T22:13:21.000007Z."
    )
    assert run("show", ledger.location, "--key", '["a", 3]')[1] == f'["a", 3]: {text}\n'
    assert "not known" in run("show", ledger.location, "--key", '["a", 4]')[1]
    for key, error in [
        ("a", """Key 'a' must be a JSON array with 2 values: ["value of id", "value of line"]."""),
        ('{"id": "a", "nope": 3}', "must be a JSON array with 2 values"),
        ('["a", 3, 4]', "must be a JSON array with 2 values"),
        ('["a", "x"]', "Value 'x' of the key column 'line' is no int."),
        ('["a", 3000000000]', "A value of the key column 'line' is no int"),
    ]:
        code, output = run("show", ledger.location, "--key", key)
        assert (code, output.count("\n")) == (1, 1)
        assert error in output


def test_a_notebook_shows_what_the_terminal_shows(path: str) -> None:
    page = Ledger.open(path)._repr_html_()
    assert f"Ledger &#x27;{path}&#x27;" in page
    for cell in ("id string", "6 ids in 6 runs, 0.0 MB", "windows", "2023-11-14", "0.7 kB"):
        assert f">{cell}</td>" in page
    assert json.loads(Path(path, "ledger.json").read_text())["secret"] not in page
    assert Ledger.open("/nowhere/<b>")._repr_html_() == "<p>There is no ledger at &#x27;/nowhere/&lt;b&gt;&#x27;.</p>"


def test_texts_of_keys_and_days() -> None:
    seen = Sighting(START, 5, START + SECOND, Memory.OVER)
    assert sightings_text([seen]) == (
        "not remembered: new at 2023-11-14T22:13:20Z, sequence number 5, over since the ledger has seen "
        "2023-11-14T22:13:21Z."
    )
    ever = Sighting(START, None, 2**61, Memory.REMEMBERED)
    assert sightings_text([seen, ever]) == "remembered: new at 2023-11-14T22:13:20Z, for ever."
    days = [
        Day(0, 1, 40, "earlier"),
        *(Day(number, 1000, 2_000_000) for number in range(10, 50)),
        Day(99, 5, 7, "later"),
    ]
    rows = day_rows(days)
    assert len(rows) == 32
    assert rows[0] == ("before 1970-01-21", "10,001", "20.0 MB")
    assert rows[1] == ("1970-01-21", "1,000", "2.0 MB")
    assert rows[-1] == ("1970-04-10 or later", "5", "0.0 kB")
    assert day_rows(days[:1]) == [("1970-01-01 or earlier", "1", "0.0 kB")]


def test_check(path: str) -> None:
    assert run("check", path) == (0, "Checked 6 runs with 6 ids, 0.7 kB: 0 problems.\n")
    found = run_json("check", path)
    assert (found["is_intact"], found["problems"], found["runs"], found["ids"]) == (True, [], 6, 6)
    Path(path, "a\nb").touch()
    Path(path, ".tmp-old").touch()
    os.utime(Path(path, ".tmp-old"), (0, 0))
    assert "1 file, 0.0 kB: the next writer deletes them" in run("show", path)[1]
    code, output = run("check", path)
    assert (code, output.splitlines()[:2]) == (
        0,
        [
            "Note: a\\nb: is not a file of a ledger, and is ignored.",
            "Note: 1 file left over, for the next writer to delete.",
        ],
    )


def test_check_finds_damage(path: str) -> None:
    with eager(1, 2):
        accepted(Ledger.open(path), ["k3", "kk3"], START + 3 * SECOND)
    expected = flip(Path(path))
    code, output = run("check", path)
    assert code == 1
    first, *_, last = output.splitlines()
    assert first.startswith(expected)
    assert last.endswith(": 1 problem.")
    result = CliRunner().invoke(main, ["ledger", "check", path, "--json"])
    assert result.exit_code == 1
    [problem] = json.loads(result.output)["problems"]
    assert f"{problem['file']}: {problem['text']}" == first


@pytest.mark.parametrize("words", [("show",), ("show", "--key", "a"), ("check",)], ids=" ".join)
def test_places_that_are_no_ledgers(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "some.csv").touch()
    (tmp_path / "file").touch()
    command, *rest = words
    for place, error in [
        ("none", f"There is no ledger at '{tmp_path}/none'."),
        (
            "data",
            f"Folder '{tmp_path}/data' is not a ledger: it holds 'some.csv' but no 'ledger.json'. Give another folder.",
        ),
        ("file", f"Ledger folder '{tmp_path}/file' cannot be read: Not a directory"),
    ]:
        assert run(command, str(tmp_path / place), *rest) == (1, f"oncebus: {error}\n")
    assert run(command, "nope://x", *rest)[1].startswith("oncebus: Ledger location 'nope://x' has the unknown scheme")
    assert sorted(os.listdir(tmp_path)) == ["data", "file"]


def test_times_without_a_date(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger")
    accepted(ledger, ["a"], -100_000 * YEAR)
    assert "0001-01-01T00:00:00Z" in run("show", ledger.location)[1]
    assert run_json("show", ledger.location)["days"][0]["day"] == "0001-01-01"
