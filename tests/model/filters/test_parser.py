from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncebus.model.filters import tree
from oncebus.model.filters.action import parse_action
from oncebus.model.filters.errors import BadRule
from oncebus.model.filters.filter import parse_filter
from oncebus.model.filters.lexer import KEYWORDS
from oncebus.model.filters.parser import DEEPEST, LONGEST_TEXT, MOST_STATEMENTS, MOST_TERMS, action_tree, filter_tree
from tests.model.filters.trees import PARAMETERS, predicates, statements, text_of
from tests.properties import examples

A, B, C = (tree.Comparison("=", tree.UserProperty(name), tree.Constant(1)) for name in "abc")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1 OR b=1 AND c=1", tree.Or((A, tree.And((B, C))))),
        ("(a=1 OR b=1) AND c=1", tree.And((tree.Or((A, B)), C))),
        ("not a=1 and b=1", tree.And((tree.Not(A), B))),
        ("NOT (a=1 AND b=1)", tree.Not(tree.And((A, B)))),
        ("a=1 AND b=1 AND c=1", tree.And((A, B, C))),
        ("((a))=(1)", A),
        ("user.a = 1", A),
        ("USER . [a] = 1", A),
        ('"a" = 1', A),
        ("[a] != 1", tree.Comparison("<>", tree.UserProperty("a"), tree.Constant(1))),
        ("SYS.subject = 'x'", tree.Comparison("=", tree.SystemProperty("Label"), tree.Constant("x"))),
        ("[x]]y] IS NULL", tree.IsNull(tree.UserProperty("x]y"))),
        ('"x""y" IS NOT NULL', tree.Not(tree.IsNull(tree.UserProperty('x"y')))),
        ("exists ( [a b] )", tree.Exists(tree.UserProperty("a b"))),
        ("P = 'it''s'", tree.Comparison("=", tree.UserProperty("P"), tree.Constant("it's"))),
        ("p ( 'x' ) IS NULL", tree.IsNull(tree.PropertyCall(tree.Constant("x")))),
        ("a NOT IN (1)", tree.Not(tree.In(tree.UserProperty("a"), (tree.Constant(1),)))),
        (
            "a like 'x!%' escape '!'",
            tree.Like(tree.UserProperty("a"), tree.Constant("x!%"), tree.Constant("!")),
        ),
        (
            "a - 1 - 2 > b + 2 * -c",
            tree.Comparison(
                ">",
                tree.Arithmetic("-", tree.Arithmetic("-", tree.UserProperty("a"), tree.Constant(1)), tree.Constant(2)),
                tree.Arithmetic(
                    "+",
                    tree.UserProperty("b"),
                    tree.Arithmetic("*", tree.Constant(2), tree.Sign("-", tree.UserProperty("c"))),
                ),
            ),
        ),
        ("@P = newid()", tree.Comparison("=", tree.Parameter("p"), tree.NewId(1))),
        ("101.5E5 = .5", tree.Comparison("=", tree.Constant(101.5e5), tree.Constant(0.5))),
        ("TRUE = null", tree.Comparison("=", tree.Constant(True), tree.Constant(None))),
        ("ödeme_1 = 1", tree.Comparison("=", tree.UserProperty("ödeme_1"), tree.Constant(1))),
    ],
)
def test_a_filter_becomes_this_tree(text: str, expected: tree.Predicate) -> None:
    assert filter_tree(text) == expected


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("", 1, "found the end where a value was expected"),
        ("   ", 4, "found the end"),
        ("a", 1, "'a' begins a value that is not compared to anything"),
        ("a = 1 AND b", 11, "'b' begins a value that is not compared"),
        ("a = ", 5, "found the end where a value was expected"),
        ("a = 1)", 6, "found ')' where AND, OR or the end was expected"),
        ("(a = 1", 7, "found the end where ')' was expected"),
        ("a = 1 = 1", 7, "found '=' where AND, OR or the end"),
        ("(a = 1) = TRUE", 1, "'(' begins a condition where a value was expected"),
        ("1 + (a = 1) = 2", 5, "begins a condition"),
        ("a == 1", 4, "found '=' where a value was expected"),
        ("a IN ()", 7, "found ')' where a value was expected"),
        ("a IN (1 2)", 9, "found '2' where ',' or ')' was expected"),
        ("a NOT = 1", 7, "found '=' where IN or LIKE was expected"),
        ("a IS 1", 6, "found '1' where 'NULL' was expected"),
        ("1 IS NULL", 1, "IS NULL takes a property"),
        ("EXISTS(1)", 8, "found '1' where a property was expected"),
        ("a LIKE 'x!' ESCAPE '!'", 8, "ends in its escape character"),
        ("a LIKE 'x' ESCAPE 'no'", 8, "ESCAPE takes one character, not 'no'"),
        ("a = 'open", 5, "' is not closed by '"),
        ("[open = 1", 1, "[ is not closed by ]"),
        ("[] = 1", 1, "empty name"),
        ("a = @", 5, "no parameter name"),
        ("_a = 1", 1, "'_' is not allowed here"),
        ("a = #1", 5, "'#' is not allowed here"),
        ("a = 12ab", 5, "'12ab' is neither a number nor a name"),
        ("a = 9223372036854775808", 5, "greater than 9223372036854775807"),
        ("a = 1e999", 5, "too large for a double"),
        ("a = like", 5, "'like' is a reserved word; write a property of that name as [like]"),
        ("sys.Body = 1", 5, "there is no system property 'Body'"),
        ("property('sys.Body') = 1", 10, "there is no system property 'Body'"),
        ("app.x = 1", 1, "there is no scope 'app'; the scopes are sys and user"),
        ("sys.1 = 1", 1, "found '.1' after it"),
        ("sys.'x' = 1", 5, "where the name of a property was expected"),
        ("reflect('java.lang.System') = 1", 1, "there is no function 'reflect'"),
        ("a = 1; DROP TABLE b", 6, "found ';'"),
        ("a = '\ud800'", 6, "half of a surrogate pair"),
    ],
)
def test_an_unreadable_filter_is_refused_with_its_place(text: str, position: int, words: str) -> None:
    with pytest.raises(BadRule) as caught:
        parse_filter(text)
    assert caught.value.position == position
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("", 1, "found the end where SET or REMOVE was expected"),
        ("SET a = 1;;", 11, "found ';' where SET or REMOVE"),
        ("SET a = 1,", 11, "found the end where SET or REMOVE"),
        ("SET a 1", 7, "found '1' where '=' was expected"),
        ("SET a = b = 1", 11, "found '=' where SET or REMOVE"),
        ("UPDATE a", 1, "found 'UPDATE' where SET or REMOVE"),
        ("SET sys.EnqueuedTimeUtc = 1", 5, "the system property EnqueuedTimeUtc cannot be changed"),
        ("SET sys.Unheard = 1", 9, "there is no system property 'Unheard'"),
        ("REMOVE sys.MessageId", 8, "the MessageId of a message cannot be removed"),
        ("SET 'a' = 1", 5, "found \"'a'\" where a property was expected"),
    ],
)
def test_an_unreadable_action_is_refused_with_its_place(text: str, position: int, words: str) -> None:
    with pytest.raises(BadRule) as caught:
        parse_action(text)
    assert caught.value.position == position
    assert words in str(caught.value)


@pytest.mark.parametrize("between", ["; ", ";", " ", ", "])
@pytest.mark.parametrize("end", ["", ";", " ; "])
def test_statements_need_no_separator(between: str, end: str) -> None:
    found = action_tree(f"SET a = b{between}remove c{end}")
    assert found == (tree.Set(tree.UserProperty("a"), tree.UserProperty("b")), tree.Remove(tree.UserProperty("c")))


def test_a_text_may_have_1024_utf_16_units() -> None:
    fits = "a='" + "x" * (LONGEST_TEXT - 4) + "'"
    parse_filter(fits)
    with pytest.raises(BadRule, match=r"has 1025 characters; at most 1024"):
        parse_filter(fits + " ")
    with pytest.raises(BadRule, match=r"has 1025 characters"):
        parse_filter(fits.replace("xx", "x\N{GRINNING FACE}", 1))


@pytest.mark.parametrize(
    "make",
    [
        lambda n: "(" * n + "a=1" + ")" * n,
        lambda n: "NOT " * n + "a=1",
        lambda n: "a=" + "-" * n + "1",
        lambda n: "a=" + "p(" * n + "'a'" + ")" * n,
        lambda n: "a=" + "1+" * n + "1",
        lambda n: "a=" + "(" * (n // 2) + "1+" * (n - n // 2) + "1" + ")" * (n // 2),
    ],
)
def test_a_text_that_nests_too_deep_is_refused(make: object) -> None:
    assert callable(make)
    parse_filter(make(DEEPEST // 2))
    for depth in (3 * DEEPEST, 200):
        with pytest.raises(BadRule, match="nested more than 32 levels deep") as caught:
            parse_filter(make(depth))
        assert caught.value.position > 1


def test_long_chains_of_and_and_or_are_not_deep() -> None:
    parse_filter(" AND ".join(["a=1"] * 120))
    parse_filter(" OR ".join(["a=1"] * 120))


def test_too_many_terms_are_refused() -> None:
    parse_filter(f"a IN ({','.join('1' * (MOST_TERMS - 1))})")
    with pytest.raises(BadRule, match="'1' is term 257; at most 256 are allowed"):
        parse_filter(f"a IN ({','.join('1' * MOST_TERMS)})")


def test_too_many_statements_are_refused() -> None:
    parse_action("SET a=1;" * MOST_STATEMENTS)
    with pytest.raises(BadRule, match="found 'SET' after 32 statements") as caught:
        parse_action("SET a=1;" * (MOST_STATEMENTS + 1))
    assert caught.value.position == MOST_STATEMENTS * len("SET a=1;") + 1


def test_parameters_are_checked_when_the_rule_is_made() -> None:
    with pytest.raises(BadRule, match="uses the parameter '@x', which has no value"):
        parse_filter("a = @x", {"y": 1})
    with pytest.raises(BadRule, match="The parameter '@x' of the filter has type list, which rules do not support"):
        parse_filter("a = @x", {"@x": []})
    with pytest.raises(BadRule, match="given twice"):
        parse_action("SET a = @x", {"@x": 1, "X": 2})


@given(predicates)
@examples(100)
def test_a_printed_filter_is_read_back_as_the_same_tree(node: tree.Predicate) -> None:
    text = text_of(node)
    if len(text) <= LONGEST_TEXT // 2:
        assert filter_tree(text) == node
        parse_filter(text, PARAMETERS)


@given(statements)
@examples(100)
def test_a_printed_action_is_read_back_as_the_same_statements(nodes: tuple[tree.Statement, ...]) -> None:
    text = "; ".join(map(text_of, nodes))
    if len(text) <= LONGEST_TEXT // 2:
        assert action_tree(text) == nodes


@contextmanager
def few_steps(text: str) -> Iterator[None]:
    """Fail the block once it makes more function calls than are proportional to the length of the text."""
    left = 1000 + 200 * len(text)

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal left
        left -= event in ("call", "c_call")
        assert left > 0, f"too many steps for {text!r}"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(before)


words = st.sampled_from([*KEYWORDS, "a", "sys.", "newid()", "p(", "'", "''", '"', "[", "]", "(", ")", "@x", "1", "1e9"])
symbols = st.sampled_from([*"=<>!+-*/%,;. \n", "\ud800", "²", "\0"])


@given(
    st.text(max_size=60)
    | st.lists(words | symbols, max_size=500).map(" ".join)
    | st.lists(words | symbols).map("".join)
)
@examples(200)
def test_garbage_is_refused_with_the_one_error(text: str) -> None:
    parsers: list[Callable[[str, dict[str, object]], object]] = [parse_filter, parse_action]
    for parse in parsers:
        try:
            with few_steps(text):
                parse(text, {"x": 1})
        except BadRule as error:
            assert 0 <= error.position <= max(len(text) + 1, LONGEST_TEXT + 1)


@pytest.mark.parametrize("unit", ["(", "'' ", "[", "NOT ", "-", "a+", "p(", "1,", "a=1 AND ", "1e", "@", "a.", "]]"])
def test_the_longest_repetitive_texts_are_parsed_in_few_steps(unit: str) -> None:
    text = (unit * LONGEST_TEXT)[:LONGEST_TEXT]
    for start in ("", "a=", "a IN ("):
        with pytest.raises(BadRule), few_steps(text):
            parse_filter((start + text)[:LONGEST_TEXT])
