from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncebus.protocols.management.documents import LARGEST, find, parse_document, read_document, without_comments
from oncebus.protocols.management.problems import Fault, FileRefused
from oncebus.protocols.untrusted_json import DEEPEST

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "//", "/*"]), inner),
    max_leaves=8,
)


def test_comments_are_removed_except_inside_strings() -> None:
    text = '{"a": "x // y /* z */", // a comment with "quotes"\n "b": /* [1, \n 2] */ [3], "c\\"//": "\\\\"} // end'
    assert parse_document(text) == {"a": "x // y /* z */", "b": [3], 'c"//': "\\"}


def test_a_string_may_contain_line_breaks_and_the_file_a_byte_order_mark() -> None:
    assert parse_document('\ufeff{"a": "one\ntwo"}'.encode()) == {"a": "one\ntwo"}


@given(VALUES)
def test_standard_json_survives_a_round_trip(value: Any) -> None:
    assert parse_document(json.dumps(value)) == value
    assert parse_document("// before\n" + json.dumps(value, indent=1).replace("\n", " /* in */\n") + "//") == value


@given(st.text('"\\/*x\n '))
def test_removing_comments_keeps_every_position(text: str) -> None:
    left = without_comments(text)
    assert len(left) == len(text)
    assert [at for at, each in enumerate(left) if each == "\n"] == [at for at, each in enumerate(text) if each == "\n"]
    assert all(one in (other, " ") for one, other in zip(left, text, strict=True))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{\n  "a": 1,\n  "b" 2\n}', "line 3, column 7: Expecting ':' delimiter."),
        ("", "line 1, column 1: Expecting value."),
        ('{"a": 1, "A": 2}', "an object has the member 'A' more than once."),
        ('{"a": NaN}', "NaN is not a number."),
        (b'{"a": "\xff"}', "it is not UTF-8."),
        (r'"\ud800"', "a string in it contains half of a surrogate pair."),
        ("9" * 5000, "a number in it has too many digits."),
        ("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1), "it is nested deeper than 64 levels."),
        ("[" * 100_000, "it is nested deeper than 64 levels."),
        (" " * (LARGEST + 1), "it is larger than 4 MB."),
    ],
)
def test_invalid_json_is_an_error_with_its_position(content: bytes | str, said: str) -> None:
    with pytest.raises(Fault) as caught:
        parse_document(content)
    assert str(caught.value) == said


def test_as_deep_as_allowed_is_read() -> None:
    assert parse_document("[" * DEEPEST + "]" * DEEPEST)


@pytest.mark.parametrize("text", ['"' + '\\"' * 500_000, '"a' * 500_000 + "\\", "/*" + "*" * 500_000])
def test_the_time_is_linear_in_the_length(text: str) -> None:
    """With backtracking from every quote, these texts would take hours."""
    assert len(without_comments(text)) == len(text)


def test_errors_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(FileRefused) as caught:
        read_document(tmp_path / "none.json", "Template")
    assert caught.value.lines == [f"Template '{tmp_path}/none.json': It cannot be read: No such file or directory."]
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(FileRefused, match=r"bad\.json': It is not JSON: line 1, column 2: "):
        read_document(tmp_path / "bad.json", "Template")


def test_members_are_found_in_any_case() -> None:
    assert find({"Type": 1, "type": 2}, "type") == 2
    assert find({"Type": 1}, "TYPE") == 1
    assert find({"Type": 1}, "kind") is None
