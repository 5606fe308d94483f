"""JSON of clients is counted before it is parsed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncebus.protocols.untrusted_json import DEEPEST, MOST_VALUES, TooDeep, TooManyValues, parse_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='a"\\[]{},:é\n'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet='a"\\[{,'), inner),
    max_leaves=20,
)


def values_in(value: object) -> int:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(values_in, inside))


def brackets_in(value: object) -> int:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, list | dict) + sum(map(brackets_in, inside))


@given(VALUES)
def test_values_are_counted_whatever_their_strings_contain(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False)
    most = values_in(value) + brackets_in(value)
    assert parse_json(text, most_values=most) == value
    few = values_in(value) // 2
    if len(text) > 2 * few:
        with pytest.raises(TooManyValues):
            parse_json(text, most_values=few - 1)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_the_depth_is_counted_in_every_encoding_that_json_allows(encoding: str) -> None:
    assert parse_json(("[" * DEEPEST + "]" * DEEPEST).encode(encoding))
    with pytest.raises(TooDeep, match="deeper than 64 levels"):
        parse_json(("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1)).encode(encoding))
    with pytest.raises(TooDeep):
        parse_json(('{"a":' * 9000).encode(encoding))


@pytest.mark.parametrize(
    "text",
    [
        "[" + "1," * MOST_VALUES + "1]",
        "{" + ",".join(f'"{at}":1' for at in range(MOST_VALUES + 1)) + "}",
        "[" + "{}," * MOST_VALUES + "1]",
    ],
    ids=["list", "object", "objects"],
)
def test_very_many_values_are_never_parsed(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(*_: object, **__: object) -> None:
        raise AssertionError("it was parsed")

    monkeypatch.setattr("oncebus.protocols.untrusted_json.json.loads", parse)
    with pytest.raises(TooManyValues, match="more than 100,000 values"):
        parse_json(text)


@pytest.mark.parametrize(
    "text",
    ['["' + "\\" * 999_999, "[" + "1" * 1_000_000, '"' * 1_000_001, '["' + '\\"' * 500_000, "[" * 65 + " " * 1_000_000],
    ids=["backslashes", "digits", "quotes", "escapes", "spaces"],
)
def test_broken_texts_are_refused_in_one_pass(text: str) -> None:
    with pytest.raises(ValueError, match=r"column|nested|digits"):
        parse_json(text)
