from __future__ import annotations

import pickle
import uuid
from collections.abc import Mapping
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncebus.model.filters import tree
from oncebus.model.filters.action import parse_action
from oncebus.model.filters.errors import EvaluationFailure
from oncebus.model.filters.filter import FALSE, TRUE, parse_filter
from oncebus.model.filters.parser import LONGEST_TEXT
from oncebus.model.filters.properties import Duration, Instant, MessageProperties
from oncebus.model.filters.routing import CompiledRule, RuleCopy, make_copies
from tests.model.filters.trees import PARAMETERS, messages, statements, text_of
from tests.properties import examples

BEFORE = MessageProperties({"MessageId": "m", "Label": "old"}, {"color": "red", "n": 7, "f": 1.5, "d": Decimal("1.50")})


def changed(text: str, parameters: Mapping[str, object] | None = None) -> MessageProperties:
    return parse_action(text, parameters).apply(BEFORE)


@pytest.mark.parametrize(
    ("text", "user"),
    [
        ("SET n = n / 2", {"n": 3}),
        ("SET N = 1", {"n": 1}),
        ("SET color = 'blue'; SET twice = color + color", {"color": "blue", "twice": "blueblue"}),
        ("SET [new one] = TRUE", {"new one": True}),
        ("SET f = 2", {"f": 2.0}),
        ("SET n = 2.5", {"n": 2.5}),
        ("SET n = missing", {"n": None}),
        ("SET x = NULL", {"x": None}),
        ("SET x = sys.Label + '!'", {"x": "old!"}),
        ("SET x = 1 REMOVE x", {}),
        ("REMOVE missing", {}),
    ],
)
def test_set_changes_user_properties(text: str, user: dict[str, object]) -> None:
    after = changed(text)
    assert after.system == BEFORE.system
    assert after.user == {**BEFORE.user, **user}
    assert all(type(after.user[name]) is type(value) for name, value in user.items())


def test_set_keeps_a_decimal_a_decimal() -> None:
    assert repr(changed("SET d = 2").user["d"]) == "Decimal('2')"


def test_remove_deletes_a_property_in_any_letter_case() -> None:
    assert changed("REMOVE COLOR; REMOVE user.f").user == {"n": 7, "d": Decimal("1.50")}


@pytest.mark.parametrize(
    ("text", "system"),
    [
        ("SET sys.Label = 'new'", {"MessageId": "m", "Label": "new"}),
        ("SET sys.subject = n", {"MessageId": "m", "Label": "7"}),
        ("SET sys.Label = NULL", {"MessageId": "m"}),
        ("REMOVE sys.Label", {"MessageId": "m"}),
        ("REMOVE sys.To", {"MessageId": "m", "Label": "old"}),
        ("SET sys.SessionId = color", {"MessageId": "m", "Label": "old", "SessionId": "red"}),
        ("SET sys.TimeToLive = @span", {"MessageId": "m", "Label": "old", "TimeToLive": Duration(5)}),
        (
            "SET sys.ScheduledEnqueueTime = @moment + @span",
            {"MessageId": "m", "Label": "old", "ScheduledEnqueueTimeUtc": Instant(8)},
        ),
    ],
)
def test_set_changes_system_properties(text: str, system: dict[str, object]) -> None:
    after = changed(text, {"span": Duration(5), "moment": Instant(3)})
    assert after.user == BEFORE.user
    assert after.system == system


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("SET x = n / 0", "'/' by zero"),
        ("SET x = 1; SET y = color - 1", "'-' cannot be applied to a string and an integer"),
        ("SET sys.MessageId = missing", "the MessageId of a message cannot be removed"),
        ("SET sys.MessageId = ''", "the MessageId of a message cannot be removed"),
        ("SET sys.TimeToLive = 5", "TimeToLive cannot be an integer"),
        ("SET sys.SessionId = @long", "SessionId cannot have 130 characters; at most 128 are allowed"),
        ("SET sys.Label = @raw", "Label cannot be a binary"),
    ],
)
def test_an_action_that_fails_says_why_and_changes_nothing(text: str, error: str) -> None:
    before = pickle.dumps((BEFORE.system, BEFORE.user))
    parameters: dict[str, object] = {"long": "\N{GRINNING FACE}" * 65, "raw": b"x"}
    with pytest.raises(EvaluationFailure) as failure:
        parse_action(text, parameters).apply(BEFORE)
    assert str(failure.value) == error
    assert pickle.dumps((BEFORE.system, BEFORE.user)) == before


@given(statements, messages(st.one_of(st.none(), st.text(), st.integers(), st.floats(), st.lists(st.none()))))
@examples(150)
def test_routing_never_raises_nor_changes_its_input(
    nodes: tuple[tree.Statement, ...], message: MessageProperties
) -> None:
    text = ";".join(map(text_of, nodes))
    if len(text) > LONGEST_TEXT // 2:
        return
    system, user = dict(message.system), dict(message.user)
    routed = make_copies([CompiledRule("r", TRUE, parse_action(text, PARAMETERS))], message, b"")
    assert len(routed.copies) + len(routed.failures) == 1
    assert list(message.system) == list(system)
    assert all(message.user[name] is value for name, value in user.items())


RULES = [
    CompiledRule("plain", TRUE),
    CompiledRule("first", parse_filter("color = 'red'"), parse_action("SET n = n + 1")),
    CompiledRule("also plain", parse_filter("n = 7")),
    CompiledRule("none", FALSE, parse_action("SET n = 0")),
    CompiledRule("second", TRUE, parse_action("REMOVE color")),
]


def test_rules_without_action_make_one_copy_and_each_action_its_own() -> None:
    routed = make_copies(RULES, BEFORE, b"seed")
    assert routed.failures == []
    assert routed.copies == [
        RuleCopy(BEFORE, None),
        RuleCopy(MessageProperties(BEFORE.system, {**BEFORE.user, "n": 8, "RuleName": "first"}), "first"),
        RuleCopy(
            MessageProperties(BEFORE.system, {"n": 7, "f": 1.5, "d": Decimal("1.50"), "RuleName": "second"}), "second"
        ),
    ]


def test_without_a_rule_there_is_no_copy() -> None:
    assert make_copies([], BEFORE, b"").copies == []
    assert make_copies([CompiledRule("none", FALSE)], BEFORE, b"").copies == []


def test_a_rule_that_fails_is_reported_and_the_others_go_on() -> None:
    rules = [
        CompiledRule("bad filter", parse_filter("color > 1")),
        CompiledRule("bad action", TRUE, parse_action("SET n = n / 0")),
        CompiledRule("good", TRUE),
    ]
    routed = make_copies(rules, BEFORE, b"")
    assert routed.copies == [RuleCopy(BEFORE)]
    assert routed.failures == [
        "The filter of rule 'bad filter' failed: '>' cannot compare a string with an integer.",
        "The action of rule 'bad action' failed: '/' by zero.",
    ]


def test_new_ids_differ_by_call_rule_and_seed_and_repeat_with_the_same_seed() -> None:
    action = parse_action("SET a = newid(); SET b = newid(); SET sys.MessageId = newid()")
    rules = [CompiledRule("one", TRUE, action), CompiledRule("two", TRUE, action)]

    def made(seed: bytes) -> list[object]:
        found = make_copies(rules, BEFORE, seed).copies
        return [value for copy in found for value in (copy.properties.user["a"], copy.properties.user["b"])]

    once = made(b"1")
    assert made(b"1") == once
    assert len(set(once + made(b"2"))) == 8
    assert all(isinstance(value, uuid.UUID) and value.version == 4 for value in once)
    assert isinstance(make_copies(rules, BEFORE, b"1").copies[0].properties.system["MessageId"], str)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=5), messages())
@examples(100)
def test_the_number_of_copies(shapes: list[tuple[bool, bool]], message: MessageProperties) -> None:
    action = parse_action("SET copied = 1")
    rules = [
        CompiledRule(str(at), TRUE if selects else FALSE, action if acts else None)
        for at, (selects, acts) in enumerate(shapes)
    ]
    routed = make_copies(rules, message, b"")
    acting = [str(at) for at, shape in enumerate(shapes) if shape == (True, True)]
    plain: list[str | None] = [None] if (True, False) in shapes else []
    assert [copy.rule for copy in routed.copies] == [*plain, *acting]
    assert all(copy.properties.user["RuleName"] == copy.rule for copy in routed.copies if copy.rule is not None)


def test_a_filter_with_newid_is_seeded_by_rule() -> None:
    half = parse_filter("'' + newid() < '8'")
    rules = [CompiledRule(str(at), half, parse_action("SET x = 1")) for at in range(40)]
    chosen = [copy.rule for copy in make_copies(rules, BEFORE, b"1").copies]
    assert 0 < len(chosen) < 40
    assert [copy.rule for copy in make_copies(rules, BEFORE, b"1").copies] == chosen
    assert [copy.rule for copy in make_copies(rules, BEFORE, b"2").copies] != chosen
