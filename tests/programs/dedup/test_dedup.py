"""The command as a process, on small data. A run takes many seconds, so each test checks many things about one run."""

from __future__ import annotations

import csv
import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from oncebus import __version__
from oncebus.ledger import Ledger
from oncebus.programs.cli import main
from oncebus.programs.cli.dedup import _EXAMPLE
from oncebus.programs.dedup.outputs import MARKER, STATE
from tests.cluster import QUICK_JVM

START = datetime(2026, 1, 1, tzinfo=UTC)
ARGUMENTS = ["--key", "id", "--time", "at", "--window", "10 minutes"]
ENVIRONMENT = os.environ | QUICK_JVM
LIMIT = 180

Row = dict[str, Any]


def messages(first: int, count: int, *, start: datetime = START) -> list[Row]:
    """Return messages with ids from `first` on, a second apart. Every fifth is repeated a minute later."""
    rows: list[Row] = [
        {"id": f"m{n}", "at": start + timedelta(seconds=n - first), "n": n} for n in range(first, first + count)
    ]
    return rows + [row | {"at": row["at"] + timedelta(minutes=1), "n": -row["n"]} for row in rows[::5]]


def as_json(rows: list[Row]) -> str:
    return "".join(json.dumps(row | {"at": row["at"].isoformat()}) + "\n" for row in rows)


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "oncebus.programs.cli", "dedup", *map(str, arguments), "--master", "local[1]"]


def without_progress(errors: str) -> str:
    """Leave out the lines of progress, which only a slow run prints."""
    return "".join(line for line in errors.splitlines(keepends=True) if not line.startswith("oncebus dedup: "))


def run(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command. Its standard error is `without_progress`."""
    done = subprocess.run(
        command(*arguments), cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout, without_progress(done.stderr))


@contextmanager
def started(*arguments: str | Path, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    process = subprocess.Popen(command(*arguments), cwd=cwd, env=ENVIRONMENT, stdout=pipe, stderr=pipe, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=LIMIT)


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + LIMIT
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < until
        time.sleep(0.005)


def json_rows(folder: Path) -> list[Row]:
    return [json.loads(line) for path in sorted(folder.glob("part-*")) for line in path.read_text().splitlines()]


def parquet_rows(folder: Path) -> list[Row]:
    return [row for path in sorted(folder.glob("part-*")) for row in pq.read_table(path).to_pylist()]


def csv_rows(folder: Path) -> list[Row]:
    return [row for path in sorted(folder.glob("part-*")) for row in csv.DictReader(path.read_text().splitlines())]


def test_the_example_of_the_help_runs_with_progress_on_a_terminal_and_one_json_object(tmp_path: Path) -> None:
    assert _EXAMPLE in " ".join(CliRunner().invoke(main, ["dedup", "--help"]).output.split())
    (tmp_path / "orders.jsonl").write_text(as_json(messages(0, 100)))
    arguments = [*shlex.split(_EXAMPLE)[2:], "--json"]
    controller, terminal = pty.openpty()
    with subprocess.Popen(
        command(*arguments), cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=terminal, text=True
    ) as process:
        os.close(terminal)
        seen = b""
        try:
            while piece := os.read(controller, 65536):
                seen += piece
        except OSError:
            pass  # Linux reports a closed terminal with this error.
        finally:
            os.close(controller)
        answer, _ = process.communicate(timeout=LIMIT)
    summary = json.loads(answer)
    assert summary | {"seconds": 0, "start_seconds": 0, "rows_per_second": 0} == {
        "rows": 120,
        "new": 100,
        "duplicates": 20,
        "without_key": 0,
        "seconds": 0,
        "start_seconds": 0,
        "rows_per_second": 0,
        "out": str(tmp_path / "unique"),
        "duplicates_out": str(tmp_path / "dropped"),
        "ledger": None,
        "finished_before": False,
    }
    for text in (b"detecting", b"rows/s", b"duplicates"):
        assert text in seen
    assert all(text not in seen for text in (b"WARN", b"INFO", b"Traceback"))
    assert sorted(row["n"] for row in json_rows(tmp_path / "unique")) == list(range(100))
    dropped = {row["n"]: row for row in json_rows(tmp_path / "dropped")}
    assert sorted(dropped) == sorted([-n for n in range(5, 100, 5)] + [0])
    assert dropped[-5] == {
        "id": "m5",
        "n": -5,
        "at": "2026-01-01T00:01:05+00:00",
        "original_time": "2026-01-01T00:00:05.000000Z",
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dropped", "orders.jsonl", "unique"]


@pytest.mark.parametrize("runs", [1, pytest.param(2, marks=pytest.mark.release)])
def test_after_a_kill_the_next_run_loses_and_repeats_nothing(tmp_path: Path, runs: int) -> None:
    ledger, out, dropped = tmp_path / "ledger", tmp_path / "out", tmp_path / "dropped"
    first = messages(0, 200)
    pq.write_table(pa.Table.from_pylist(first), tmp_path / "first.parquet")
    # Half of these ids are in the first run too, and their window ends one second later.
    second = messages(100, 200, start=START + timedelta(seconds=100 + 599))
    pq.write_table(pa.Table.from_pylist(second), tmp_path / "second.parquet")
    killed: list[tuple[str, list[Row], Callable[[], bool]]] = [
        # Kill once the ledger is written but not committed, and once the first rows are in place.
        ("first", first, lambda: len(list(ledger.glob("[!.]*"))) > 1),
        ("second", second, lambda: any((out / "second").glob("part-*"))),
    ]
    for name, rows, moment in killed[:runs]:
        arguments: list[str | Path] = [tmp_path / f"{name}.parquet", *ARGUMENTS, "--sequence", "n", "--ledger", ledger]
        arguments += ["--out", out / name, "--duplicates", dropped / name]
        with started(*arguments, cwd=tmp_path) as process:
            wait_for(moment, process)
            process.send_signal(signal.SIGKILL)
        again = run(*arguments, cwd=tmp_path)
        assert (again.returncode, again.stderr) == (0, "")
        accepted, duplicates = parquet_rows(out / name), parquet_rows(dropped / name)
        assert sorted(row["n"] for row in accepted + duplicates) == sorted(row["n"] for row in rows)
        if name == "first":
            assert sorted(row["n"] for row in accepted) == list(range(200))
        else:
            # Rows that are repeated a minute later are more than a window after the original, so they are new.
            expected = [*range(-195, -99, 5), *range(200, 300)]
            assert sorted(row["n"] for row in accepted) == expected
            assert {row["original_sequence"] for row in duplicates if row["n"] in range(100, 200)} == set(
                range(100, 200)
            )
        assert not (out / name / "_oncebus").exists()
        # The ledger does not know for ever that the run has finished.
        assert json.loads((out / name / MARKER).read_text())["generation"] is None
    # Another run does nothing and loses nothing.
    last = run(*arguments, "--json", cwd=tmp_path)
    assert json.loads(last.stdout)["finished_before"]
    assert json.loads(last.stdout)["new"] == len(accepted)
    assert parquet_rows(out / name) == accepted
    other = run(*arguments, "--lateness", "1 hour", cwd=tmp_path)
    assert (other.returncode, other.stdout) == (1, "")
    assert other.stderr.endswith("Give a new folder or --overwrite.\n")
    assert other.stderr.count("\n") == 1


def test_csv_keeps_ids_as_text_and_a_pipe_gets_the_summary(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    text = 'id,at,note\n007,2026-01-01 00:00:00.000001,"say ""hi"", she"\n7,2026-01-01 00:00:01,\n'
    (tmp_path / "in" / "a.csv").write_text(text)
    (tmp_path / "in" / "b.csv").write_text("id,at,note\n007,2026-01-01T00:09:59Z,late\n,2026-01-01,none\n")
    done = run("in", *ARGUMENTS, "--out", "out", "--duplicates", "dropped", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "without key" in done.stdout
    accepted = sorted(csv_rows(tmp_path / "out"), key=lambda row: str(row["at"]))
    assert accepted == [
        {"id": "", "at": "2026-01-01", "note": "none"},
        {"id": "007", "at": "2026-01-01 00:00:00.000001", "note": 'say "hi", she'},
        {"id": "7", "at": "2026-01-01 00:00:01", "note": ""},
    ]
    assert csv_rows(tmp_path / "dropped") == [
        {
            "id": "007",
            "at": "2026-01-01T00:09:59Z",
            "note": "late",
            "original_time": "2026-01-01T00:00:00.000001Z",
        }
    ]


def test_gaps_are_printed_and_a_ledger_is_seeded(tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text(as_json(messages(0, 50)))
    done = run("in.json", "--key", "id", "--time", "at", "--gaps", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("10 repeats in 60 rows: 99.9 % came within 1 min, the latest after 1 min.\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.json"]
    table = pa.table({"id": [f"m{n}" for n in range(60)], "at": [START] * 60})
    pq.write_table(table, tmp_path / "held.parquet")
    seed = [*command()[:3], "ledger", "seed", "ledger", "held.parquet", "--key", "id", "--time", "at"]
    options = ["--window", "10m", "--parts", "2", "--master", "local[1]", "--json"]
    done = subprocess.run(
        seed + options, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=LIMIT, check=True
    )
    found = json.loads(done.stdout)
    assert (found["rows"], found["remembered"], found["ledger"]) == (60, 60, str(tmp_path / "ledger"))
    assert Ledger.open(tmp_path / "ledger").contains("m59") is not None


def test_a_seed_that_is_killed_goes_on_in_a_new_process(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [f"m{n}" for n in range(400)], "at": [START] * 400}), tmp_path / "held.parquet")
    seed = [*command()[:3], "ledger", "seed", "ledger", "held.parquet", "--key", "id", "--time", "at"]
    seed += ["--window", "10m", "--parts", "100", "--master", "local[1]", "--json"]
    first = subprocess.Popen(
        seed, cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        wait_for(lambda: bool(list((tmp_path / "ledger").glob("run-*"))), first)
    finally:
        first.kill()
        first.communicate(timeout=LIMIT)
    assert Ledger.open(tmp_path / "ledger").summary().ids == 0
    done = subprocess.run(
        seed, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=LIMIT, check=True
    )
    found = json.loads(done.stdout)
    assert 0 < found["resumed"] < found["parts"] == 100
    assert found["rows"] < found["remembered"] == 400


def test_following_continues_where_it_was_stopped(tmp_path: Path) -> None:
    inbox, out, dropped = tmp_path / "in", tmp_path / "out", tmp_path / "dropped"
    inbox.mkdir()

    def put(name: str, rows: list[Row]) -> None:
        (tmp_path / name).write_text(as_json(rows))
        (tmp_path / name).rename(inbox / name)

    put("a.json", messages(0, 50))
    arguments: list[str | Path] = [inbox, *ARGUMENTS, "--out", out, "--duplicates", dropped, "--follow", "--json"]
    with started(*arguments, cwd=tmp_path) as process:
        wait_for((dropped / MARKER).exists, process)
        process.kill()
    # A Spark that is killed as it begins the first batch leaves such a file.
    offsets = out / STATE / "checkpoint" / "offsets"
    offsets.mkdir(parents=True, exist_ok=True)
    (offsets / ".0.4459383a.tmp").touch()
    assert not (offsets / "0").exists()
    with started(*arguments, cwd=tmp_path) as process:
        wait_for(lambda: len(json_rows(out)) >= 50, process)
        put("b.json", messages(40, 20, start=START + timedelta(seconds=40)))
        wait_for(lambda: any(row["id"] == "m59" for row in json_rows(out)), process)
        process.send_signal(signal.SIGINT)
        answer, errors = process.communicate(timeout=LIMIT)
        assert (process.returncode, without_progress(errors)) == (0, "")
        assert json.loads(answer)["rows"] == 60 + 24
    put("c.json", messages(50, 30, start=START + timedelta(seconds=50)))
    with started(*arguments, cwd=tmp_path) as process:
        wait_for(lambda: any(row["id"] == "m79" for row in json_rows(out)), process)
        process.send_signal(signal.SIGTERM)
        answer, errors = process.communicate(timeout=LIMIT)
        assert (process.returncode, without_progress(errors)) == (0, "")
        assert (json.loads(answer)["rows"], json.loads(answer)["new"]) == (36, 20)
    assert sorted(int(row["id"][1:]) for row in json_rows(out)) == list(range(80))
    assert len(json_rows(dropped)) == 60 + 24 + 36 - 80


def test_errors_that_only_spark_can_find_are_one_line_too(tmp_path: Path) -> None:
    (tmp_path / "null.json").write_text('{"id": "a", "at": null}\n{"id": "b", "at": "2026-01-01"}\n')
    (tmp_path / "text.json").write_text('{"id": "a", "at": "tomorrow"}\n')
    expected = {
        "null": "The column 'at' is null in 1 of ",
        "text": "The time column 'at' holds 'tomorrow', which is not a timestamp like 2026-01-31T12:00:00Z.",
    }
    with ThreadPoolExecutor(2) as pool:
        places = [
            [f"{name}.json", *ARGUMENTS, "--out", f"out/{name}", "--ledger", f"ledger/{name}"] for name in expected
        ]
        runs = list(pool.map(lambda arguments: run(*arguments, cwd=tmp_path), places))
    for done, text in zip(runs, expected.values(), strict=True):
        assert (done.returncode, done.stdout) == (1, ""), done.args
        assert done.stderr.startswith(f"oncebus: {text}"), done.stderr
        assert done.stderr.count("\n") == 1
    assert not any((tmp_path / "out").glob("*"))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["missing.json"], "Source '{cwd}/missing.json' does not exist."),
        (["empty"], "Source '{cwd}/empty' contains no files."),
        (["a.txt"], "The format of '{cwd}/a.txt' cannot be guessed from its name. Give --format."),
        (["s3a://bucket/x"], "Source 's3a://bucket/x' is not a local path."
            " Only local files and folders are supported."),
        (["a.json", "--duplicates", "out"], "Output '{cwd}/out' and output '{cwd}/out' must not contain each other."),
        (["a.json", "--ledger", "out/x"], "Ledger '{cwd}/out/x' and output '{cwd}/out' must not contain each other."),
        (["a.json", "--duplicates", "full"], "Output '{cwd}/full' contains 'mine', which is not from this run."
            " Give a new folder or --overwrite."),
        (["a.json", "--duplicates", "a.txt"], "Output '{cwd}/a.txt' is not a folder."),
        (["a.json", "--lateness", "soon"], "Lateness 'soon' is not a duration."
            " Write it like 90s, 10m, 2h, 7d, PT10M, 00:10:00 or '10 minutes'."),
        (["a.json", "--lateness=-00:10:00"], "Lateness '-00:10:00' must be zero or longer."),
        (["a.json", "--follow"], "Source '{cwd}/a.json' is not a folder. Only folders can be followed."),
        (["empty", "--follow"], "Source '{cwd}/empty' contains no files."),
    ],
)  # fmt: skip
def test_errors_in_the_arguments_are_reported_at_once_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    (tmp_path / "a.txt").touch()
    (tmp_path / "a.json").write_text(as_json(messages(0, 1)))
    before = signal.getsignal(signal.SIGTERM)
    try:
        done = CliRunner().invoke(main, ["dedup", *arguments, *ARGUMENTS, "--out", "out"])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == f"oncebus: {expected}\n".replace("{cwd}", str(tmp_path))
    assert not (tmp_path / "out").exists()


def test_a_usage_error_has_exit_code_two() -> None:
    for words, missing in ((["--out", "x"], "--window"), (["--window", "10m"], "--out")):
        done = CliRunner().invoke(main, ["dedup", "x.json", "--key", "id", "--time", "at", *words])
        assert (done.exit_code, f"Missing option '{missing}'" in done.output) == (2, True)
    done = CliRunner().invoke(main, ["dedup", "x.json", "--key", "id", "--time", "at", "--gaps", "--out", "y"])
    assert (done.exit_code, "Option --gaps goes with --key" in done.output) == (2, True)
    assert CliRunner().invoke(main, ["dedup", "x.json"]).exit_code == 2
    assert CliRunner().invoke(main, ["--version"]).output == f"oncebus {__version__}\n"
