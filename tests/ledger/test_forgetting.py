"""Forgetting keys of a ledger that `detect_duplicates` writes, without Spark."""

from __future__ import annotations

import os
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

from oncebus.detection import NO_SEQUENCE, Rows
from oncebus.detection.hashing import digests_of_keys
from oncebus.ledger import BadKey, Ledger, LedgerInUse, LedgerMismatch, Owner, Writer
from oncebus.ledger.keys import key_columns, key_digests, parse_key
from oncebus.programs.cli import main
from tests.histories import SECOND, START

WINDOW = 600 * SECOND


def rows_of(ledger: Ledger, ids: list[str], time: int) -> Rows:
    high, low, has_key = digests_of_keys([pa.array(ids)], ledger.secret())
    size = len(ids)
    window = np.full(size, WINDOW, np.int64)
    times, none = np.full(size, time, np.int64), np.full(size, NO_SEQUENCE, np.int64)
    return Rows(high, low, has_key, times, window, window, none, np.arange(size).__getitem__, has_sequence=False)


def accepted(ledger: Ledger, ids: list[str], time: int = START) -> list[str]:
    """Judge rows in a batch of their own, in two parts as Spark would choose them. Return the ids of new rows."""
    ledger.describe_or_check(["id string"], has_secret=True)
    found = []
    with ledger.batch() as batch:
        batch.begin(lambda _: False, Owner.this_process())
        for part in range(2):
            some = [each for each in ids if len(each) % 2 == part]
            if some:
                verdicts = ledger.judge(
                    rows_of(ledger, some, time), batch.generation, batch.number, part=part, parts=2, clock=2**62
                )
                found += [each for each, is_old in zip(some, verdicts.is_duplicate, strict=True) if not is_old]
    return sorted(found)


def test_forgotten_keys_are_new_once(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger")
    assert accepted(ledger, ["a", "b", "cc"]) == ["a", "b", "cc"]
    assert ledger.forget(["a", "cc", "never seen", "a"]) == 2
    assert Ledger.open(tmp_path / "ledger").forget(["a"]) == 0, "it is forgotten already"
    # The very same rows come again: with the same times, and without numbers.
    assert accepted(ledger, ["a", "b", "cc"]) == ["a", "cc"]
    assert accepted(ledger, ["a", "b", "cc"]) == []
    assert ledger.forget(["a"]) == 1
    assert accepted(ledger, ["a"]) == ["a"]


def test_a_forget_without_effect_leaves_no_trace(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger")
    accepted(ledger, ["a"])
    before = sorted(os.listdir(tmp_path / "ledger"))
    assert ledger.forget(["b"]) == 0
    assert ledger.forget([]) == 0
    assert sorted(os.listdir(tmp_path / "ledger")) == before


def test_a_forget_does_not_move_the_horizon(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger")
    accepted(ledger, ["a", "b"])
    horizon = ledger.summary().horizon
    ledger.forget(["a"])
    assert ledger.summary().horizon == horizon == START
    assert accepted(ledger, ["a", "b"], START + WINDOW - 1) == ["a"]


def test_many_forgets_are_merged_and_leave_with_their_keys(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger")
    for at in range(24):
        name = f"{at:02}"
        assert accepted(ledger, [name], START + at) == [name]
        assert ledger.forget([name]) == 1
    assert accepted(ledger, ["00", "23"], START + 24) == ["00", "23"]
    assert accepted(ledger, ["00", "23"], START + 24) == []
    assert len(list((tmp_path / "ledger").glob("run-*"))) < 40
    for at in range(4):
        accepted(ledger, [f"much later {at}"], START + (at + 2) * WINDOW)
    assert ledger.summary().ids < 10


def test_a_forget_that_dies_or_loses_a_race_has_no_effect(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger")
    accepted(ledger, ["a"])
    with mock.patch.object(Ledger, "claim_first", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        ledger.forget(["a"])
    assert accepted(ledger, ["a"]) == []

    decide = Ledger.decide

    def overtaken(self: Ledger, *given: Any, **named: Any) -> Any:
        with mock.patch.object(Ledger, "decide", decide):
            accepted(Ledger.open(tmp_path / "ledger"), ["b"])
        return decide(self, *given, **named)

    with mock.patch.object(Ledger, "decide", overtaken), pytest.raises(LedgerInUse, match="has been taken over"):
        ledger.forget(["a"])
    assert accepted(ledger, ["a"]) == []
    assert ledger.forget(["a"]) == 1


def test_what_cannot_be_forgotten_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LedgerMismatch, match="There is no ledger at"):
        Ledger.open(tmp_path / "none").forget(["a"])
    assert not (tmp_path / "none").exists()
    broker = Ledger.open(tmp_path / "broker")
    broker.describe_or_check(["entity, message id, partition key"])
    with pytest.raises(LedgerMismatch, match="use 'oncebus forget'"):
        broker.forget(["a"])
    query = Ledger.open(tmp_path / "query")
    query.describe_or_check(["id string"], has_secret=True)
    generation = query.join(Writer("a", "some query", Owner("elsewhere", 1, "0")), 0)
    query.judge(rows_of(query, ["a"], START), generation, 0, part=0, parts=1, clock=2**62)
    with pytest.raises(LedgerInUse, match="belongs to query some query"):
        query.forget(["a"])


KEYS: list[tuple[str, pa.DataType, Any, str]] = [
    ("string", pa.string(), "ödeme 1", "ödeme 1"),
    ("binary", pa.binary(), b"\x00\xff", "00ff"),
    ("boolean", pa.bool_(), True, "True"),
    ("tinyint", pa.int8(), -3, "-3"),
    ("smallint", pa.int16(), 300, "300"),
    ("int", pa.int32(), 5, "5"),
    ("bigint", pa.int64(), 2**40, str(2**40)),
    ("decimal(20,2)", pa.decimal128(20, 2), Decimal("1.50"), "1.5"),
    ("date", pa.date32(), date(2026, 1, 31), "2026-01-31"),
    ("timestamp", pa.timestamp("us", "UTC"), datetime(2026, 1, 31, 8, tzinfo=UTC), "2026-01-31T09:00:00+01:00"),
    ("timestamp", pa.timestamp("us", "UTC"), datetime(2026, 1, 31, 8, tzinfo=UTC), "2026-01-31T08:00:00"),
    ("timestamp_ntz", pa.timestamp("us"), datetime(2026, 1, 31, 8), "2026-01-31T08:00:00"),
]


@pytest.mark.parametrize(("kind", "type_", "value", "text"), KEYS)
def test_a_typed_key_has_the_digest_of_the_column(kind: str, type_: pa.DataType, value: Any, text: str) -> None:
    """The Arrow types are those that Spark gives to the operator."""
    columns = key_columns([f"my id {kind}"], "somewhere")
    high, low, _ = digests_of_keys([pa.array([value], type_)], b"secret")
    for key in (value, (value,), parse_key(text, columns)):
        assert [half.tolist() for half in key_digests([key], columns, b"secret")] == [high.tolist(), low.tolist()]


def test_keys_that_do_not_fit_are_refused() -> None:
    columns = key_columns(["id string", "line int"], "somewhere")
    assert parse_key('["a", 5]', columns) == parse_key('["a", "5"]', columns) == ("a", 5)
    for text in ("a", '["a"]', '{"id": "a"}', '["a", "b"]', '["a", 1.5]', '["a", null]'):
        with pytest.raises(BadKey):
            parse_key(text, columns)
    for key in ("a", ("a",), ("a", 1, 2), ("a", None), ("a", "b"), ("a", True), ("a", 2**40), (5, 5)):
        with pytest.raises(BadKey):
            key_digests([key], columns, b"secret")
    timestamps = key_columns(["at timestamp"], "somewhere")
    with pytest.raises(BadKey, match="needs a time zone"):
        key_digests([datetime(2026, 1, 31)], timestamps, b"secret")


def test_the_command_forgets(tmp_path: Path) -> None:
    path = str(tmp_path / "ledger")
    accepted(Ledger.open(path), ["a", "b"])

    def run(*words: str) -> tuple[int, str]:
        result = CliRunner().invoke(main, ["ledger", "forget", path, *words])
        return result.exit_code, result.output

    assert run("a", "b", "c") == (0, "2 keys forgotten.\n")
    assert run("a") == (0, "Nothing to forget: the ledger remembers none of these keys.\n")
    assert run("a", "--json") == (0, f'{{"ledger": "{path}", "keys": 1, "remembered": 0}}\n')
    assert run()[0] == 2
    assert accepted(Ledger.open(path), ["a", "b"]) == ["a", "b"]
