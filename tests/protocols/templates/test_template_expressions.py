from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncebus.protocols.management.problems import Fault, Problems
from oncebus.protocols.templates.evaluation import BROKEN, Evaluator
from oncebus.protocols.templates.expressions import DEEPEST, LONGEST, is_expression, parse_expression
from oncebus.protocols.templates.functions import FUNCTIONS
from oncebus.protocols.templates.scope import Deployment

DEPLOYMENT = Deployment("first", "sub-id", "group")
PARAMETERS: dict[str, Any] = {"name": "orders", "size": 3, "tags": {"Colour": "red"}, "none": None, "list": ["a", "b"]}
GROUP = "/subscriptions/sub-id/resourceGroups/group"


def parameter(name: str) -> Any:
    if name not in PARAMETERS:
        raise Fault(f"The parameter '{name}' does not exist.")
    return PARAMETERS[name]


def evaluated(text: Any, variables: dict[str, Any] | None = None) -> Any:
    found = Problems()
    value = Evaluator(variables or {}, parameter, DEPLOYMENT, found).value(text, "here")
    assert not found, list(found)
    return value


def wrong(text: Any, variables: dict[str, Any] | None = None) -> str:
    """Return the error of a text that cannot be evaluated."""
    found = Problems()
    assert Evaluator(variables or {}, parameter, DEPLOYMENT, found).value(text, "here") is BROKEN
    (problem,) = found
    return problem.text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain", "plain"),
        ("[abc", "[abc"),
        ("[[concat('a')]", "[concat('a')]"),
        ("['it''s']", "it's"),
        ("[-12]", -12),
        ("[ concat( 'a' , 'b' ) ]", "ab"),
        ("[concat(parameters('name'), '-', 1, true())]", "orders-1True"),
        ("[concat(createArray(1), parameters('list'))]", [1, "a", "b"]),
        ("[CONCAT('a', toUpper('b'), toLower('C'))]", "aBc"),
        ("[format('{0}-{1:D3}-{0} {{}} {2:000} {3:X2}', 'a', 7, -5, 255)]", "a-007-a {} -005 FF"),
        ("[format('{0:N0} {1}', 1234567, true())]", "1,234,567 True"),
        ("[parameters('tags').colour]", "red"),
        ("[parameters('tags')['COLOUR']]", "red"),
        ("[parameters('list')[sub(2, 1)]]", "b"),
        ("[resourceGroup().location]", "local"),
        ("[resourceGroup().id]", GROUP),
        ("[subscription().subscriptionId]", "sub-id"),
        ("[deployment().name]", "first"),
        ("[resourceId('A.B/namespaces/', 'n')]", f"{GROUP}/providers/A.B/namespaces/n"),
        (
            "[resourceId('other', 'Microsoft.ServiceBus/namespaces/queues', 'n', 'q')]",
            "/subscriptions/sub-id/resourceGroups/other/providers/Microsoft.ServiceBus/namespaces/n/queues/q",
        ),
        (
            "[resourceId('s', 'g', 'A.B/c', 'n')]",
            "/subscriptions/s/resourceGroups/g/providers/A.B/c/n",
        ),
        ("[if(equals(1, 1), 'yes', parameters('absent'))]", "yes"),
        ("[if(not(true()), parameters('absent'), 'no')]", "no"),
        ("[and(true(), false())]", False),
        ("[or(false(), true(), parameters('absent'))]", True),
        ("[equals('a', 'A')]", False),
        ("[equals(1, true())]", False),
        ("[equals(createArray(1), createArray(1))]", True),
        ("[string(5)]", "5"),
        ("[string(createObject('a', createArray(1, null())))]", '{"a":[1,null]}'),
        ("[int('-7')]", -7),
        ("[bool('True')]", True),
        ("[bool(0)]", False),
        ("[replace('a-b-c', '-', '')]", "abc"),
        ("[substring('orders', 1, 3)]", "rde"),
        ("[substring('orders', 4)]", "rs"),
        ("[length('abc')]", 3),
        ("[length(parameters('tags'))]", 1),
        ("[empty('')]", True),
        ("[empty(parameters('none'))]", True),
        ("[empty(createArray(0))]", False),
        ("[coalesce(parameters('none'), 'x', parameters('absent'))]", "x"),
        ("[coalesce(null())]", None),
        ("[union(createArray(1, 2), createArray(2, true(), 3))]", [1, 2, True, 3]),
        (
            "[union(createObject('a', createObject('x', 1)), createObject('A', createObject('y', 2), 'b', 3))]",
            {"a": {"x": 1, "y": 2}, "b": 3},
        ),
        ("[intersection(createArray(1, 2), createArray(2, 3))]", [2]),
        ("[split('a,b;c', createArray(',', ';'))]", ["a", "b", "c"]),
        ("[split('a.b', '.')]", ["a", "b"]),
        ("[join(createArray('a', 1), '-')]", "a-1"),
        ("[contains('abc', 'b')]", True),
        ("[contains(parameters('tags'), 'COLOUR')]", True),
        ("[contains(createArray(1), true())]", False),
        ("[startsWith('Abc', 'aB')]", True),
        ("[endsWith('abc', 'x')]", False),
        ("[first(parameters('list'))]", "a"),
        ("[last('abc')]", "c"),
        ("[take('abc', 2)]", "ab"),
        ("[skip(parameters('list'), 1)]", ["b"]),
        ("[indexOf('abc', 'C')]", 2),
        ("[padLeft(7, 3, '0')]", "007"),
        ("[trim('  a ')]", "a"),
        ("[base64ToString(base64('ö'))]", "ö"),
        ("[json('{\"a\": [1]}').a[0]]", 1),
        ("[add(1, mul(2, 3))]", 7),
        ("[div(-7, 2)]", -3),
        ("[mod(-7, 2)]", -1),
        ("[max(createArray(1, 5, 3))]", 5),
        ("[min(4, 2)]", 2),
        ("[range(2, 3)]", [2, 3, 4]),
        ("[less('a', 'b')]", True),
        ("[greaterOrEquals(2, 2)]", True),
        ("[items(createObject('b', 2, 'a', 1))[0].key]", "a"),
        ("[tryGet(parameters('tags'), 'size', 'more')]", None),
        ("[tryGet(parameters('tags'), 'colour')]", "red"),
        ("[array('a')]", ["a"]),
    ],
)  # fmt: skip
def test_the_value_of_an_expression(text: str, value: object) -> None:
    found = evaluated(text)
    assert found == value
    assert type(found) is type(value)


def test_a_unique_string_depends_on_its_arguments_only() -> None:
    one = evaluated("[uniqueString(resourceGroup().id)]")
    assert one == evaluated("[uniqueString(resourceGroup().id)]")
    assert len(one) == 13
    assert one.isalnum()
    assert one.islower()
    assert evaluated("[uniqueString('ab', 'c')]") != evaluated("[uniqueString('a', 'bc')]")
    assert evaluated("[guid('a')]") == evaluated("[guid('a')]") != evaluated("[guid('b')]")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "found the end at character 2, expected a text in single quotes, a number or a function."),
        ("[concat('a']", "found the end at character 12, expected ')'."),
        ("[concat 'a']", "\"'a'\" at character 9, expected '(' after 'concat'."),
        ("[concat('a') b]", "'b' at character 14, expected the end."),
        ("['a]", '"\'" at character 2, expected a text in single quotes, a number or a function.'),
        ("[parameters('name').1]", "'1' at character 21, expected the name of a member."),
        ("[contoso.name('a')]", "The template defines the function 'contoso.…'; such functions are not supported."),
        ("[cancat('a')]", "The function 'cancat' is unknown. Did you mean 'concat'?"),
        ("[__import__('os')]", "The function '__import__' is unknown."),
        (
            "[reference('x').y]",
            "The function 'reference' reads the deployed resources. Of such functions, only reference and listKeys are "
            "supported, and only in outputs.",
        ),
        ("[listKeys('x', 'y').primaryKey]", "reads the deployed resources"),
        ("[map(createArray(1), 'x')]", "takes functions as arguments; such functions are not supported."),
        ("[toLower(1)]", "The function 'toLower' takes a string as its first argument, not int."),
        ("[toLower('a', 'b')]", "The function 'toLower' takes 1 argument, not 2."),
        ("[concat()]", "The function 'concat' takes at least 1 argument, not 0."),
        ("[substring('abc', 2, 5)]", "needs 5 characters from 2 of 'abc', which has only 3."),
        ("[if('yes', 1, 2)]", "The function 'if' takes a bool as its first argument, not string."),
        ("[int('x')]", "cannot convert 'x' to a number."),
        ("[bool('maybe')]", "cannot convert 'maybe' to true or false."),
        ("[format('{2}', 1)]", "refers to the value {2}, but got only 1 values."),
        ("[format('{', 1)]", "has a single brace in '{'. Write it twice."),
        ("[format('{0:Q}', 1)]", "cannot write 1 as 'Q'."),
        ("[createObject('a')]", "takes pairs of a name and a value, not 1 arguments."),
        ("[parameters('tags').size]", "The object has no member 'size'. It has 'Colour'."),
        ("[parameters('list')[2]]", "The array has 2 items, and none at index 2."),
        ("[parameters('list')[true()]]", "A value of type array has nothing at True."),
        ("[parameters('absent')]", "The parameter 'absent' does not exist."),
        ("[variables('absent')]", "The variable 'absent' does not exist."),
        ("[copyIndex()]", "The function 'copyIndex' works only in a copy loop."),
        ("[div(1, 0)]", "divides by zero."),
        ("[mul(9999999999, 9999999999)]", "returns a number of more than 64 bits."),
        ("[resourceId('a', 'b')]", "takes a resource type, like 'Microsoft.ServiceBus/namespaces'."),
        ("[resourceId('A/b', 'c', 'd')]", "needs 1 names for the type 'A/b', but got 2."),
        ("[json('{')]", "got a string that is not JSON: line 1, column 2"),
        ("[range(0, 99999)]", "makes 0 to 10000 numbers, not 99999."),
        ("[12345678901234567890]", "The number 12345678901234567890… is too long."),
    ],
)
def test_the_error_of_an_invalid_expression(text: str, said: str) -> None:
    assert said in wrong(text)


def test_an_expression_has_limits_of_length_and_depth() -> None:
    deep = "not(" * DEEPEST + "true()" + ")" * DEEPEST
    assert wrong(f"[{deep}]") == "The expression is nested deeper than 50 levels."
    shallow = "not(" * (DEEPEST - 1) + "true()" + ")" * (DEEPEST - 1)
    assert evaluated(f"[{shallow}]") is False
    assert wrong(f"['{'a' * LONGEST}']") == f"The expression has {LONGEST + 4} characters; {LONGEST} is the limit."


def doubling(name: str) -> dict[str, str]:
    """Return variables that are each twice as large as the previous one."""
    return {f"v{at}": f"[{name}(variables('v{at - 1}'), variables('v{at - 1}'))]" for at in range(1, 40)}


@pytest.mark.parametrize(
    "variables",
    [
        {"v0": "a" * 1000} | doubling("concat"),
        {"v0": [1]} | doubling("createArray"),
        {"v0": "a" * 10_000, "v39": "[replace(variables('v0'), 'a', variables('v0'))]"},
        {"v0": "a" * 10_000, "v39": "[join(range(0, 10000), variables('v0'))]"},
        {"v0": "a" * 10_000, "v39": "[format('" + "{0}" * 5000 + "', variables('v0'))]"},
        {"v0": ["a" * 10_000] * 400, "v39": "[concat(" + ",".join(["variables('v0')"] * 1000) + ")]"},
    ],
)  # fmt: skip
def test_expressions_cannot_grow_without_end(variables: dict[str, Any]) -> None:
    found = Problems()
    assert Evaluator(variables, parameter, DEPLOYMENT, found).value("[variables('v39')]", "here") is BROKEN
    (problem,) = found
    assert "need too much computation" in problem.text or "would make a string of more than" in problem.text


def test_variables_are_evaluated_on_first_use_in_any_order() -> None:
    variables = {"a": "[concat(variables('B'), '!')]", "b": {"x": "[parameters('name')]"}, "c": "[variables('b').x]"}
    assert evaluated("[variables('c')]", variables) == "orders"
    wanted = "takes a string, an int, a bool or an array as its first argument, not object"
    assert wanted in wrong_in(variables)["variables.a"]


def wrong_in(variables: dict[str, Any]) -> dict[str, str]:
    found = Problems()
    Evaluator(variables, parameter, DEPLOYMENT, found).check_variables()
    return {problem.path: problem.text for problem in found}


def test_a_circular_variable_is_reported_once_with_its_circle() -> None:
    variables = {"a": "[variables('b')]", "b": ["[variables('c')]"], "c": "[variables('a')]", "d": "[variables('a')]"}
    assert wrong_in(variables) == {"variables.c": "The variable 'a' depends on itself: a → b → c → a."}


def test_a_long_chain_of_variables_is_rejected_without_a_crash() -> None:
    variables = {f"v{at}": f"[not(variables('v{at + 1}'))]" for at in range(2000)} | {"v2000": True}
    assert "parameters and variables through too many levels" in " ".join(wrong_in(variables).values())


def test_loops_make_arrays_of_variables_and_of_properties() -> None:
    variables = {
        "copy": [{"name": "Names", "count": 3, "input": "[concat('q', copyIndex('names', 1))]"}],
        "nested": {"copy": [{"name": "x", "count": 2, "input": {"at": "[copyIndex('x')]"}}], "y": 1},
    }
    assert evaluated("[variables('names')]", variables) == ["q1", "q2", "q3"]
    assert evaluated("[variables('nested')]", variables) == {"x": [{"at": 0}, {"at": 1}], "y": 1}
    looped = {"copy": [{"name": "z", "count": "[parameters('size')]", "input": "[copyIndex()]"}]}
    assert evaluated(looped) == {"z": [0, 1, 2]}
    inner = {"copy": [{"name": "b", "count": 2, "input": "[concat(string(copyIndex('a')), string(copyIndex()))]"}]}
    assert evaluated({"copy": [{"name": "a", "count": 2, "input": inner}]}) == {
        "a": [{"b": ["00", "01"]}, {"b": ["10", "11"]}]
    }


def test_loops_in_loops_cannot_go_on_without_end() -> None:
    written: Any = 1
    for name in "abcd":
        written = {"copy": [{"name": name, "count": 800, "input": written}]}
    found = Problems()
    Evaluator({}, parameter, DEPLOYMENT, found).value(written, "here")
    assert {problem.text for problem in found} == {"The expressions of the template need too much computation."}


def test_an_invalid_loop_is_reported_with_its_place() -> None:
    found = Problems()
    evaluator = Evaluator({}, parameter, DEPLOYMENT, found)
    evaluator.value({"copy": [{"name": "z", "count": 801, "input": 1}]}, "here")
    evaluator.value({"copy": [{"name": "z", "count": 1, "input": "[copyIndex('y')]"}]}, "there")
    assert {problem.path: problem.text for problem in found} == {
        "here.copy[0].count": "A copy loop makes 0 to 800 copies, not 801.",
        "there.copy[0].input": "The function 'copyIndex' names the loop 'y', but is in z.",
    }


def test_names_of_members_may_be_expressions() -> None:
    assert evaluated({"[parameters('name')]": 1, "[[x]": 2}) == {"orders": 1, "[x]": 2}


def test_every_error_in_a_value_is_reported_with_its_place() -> None:
    found = Problems()
    Evaluator({}, parameter, DEPLOYMENT, found).value({"a": ["[x()]", {"b c": "[y()]"}], "ok": "[true()]"}, "here")
    assert [problem.path for problem in found] == ["here.a[0]", "here.a[1]['b c']"]


CHARACTERS = st.text("[](){}'.,- abfotu019_\"\\")


@given(CHARACTERS | st.text())
def test_any_text_is_evaluated_or_refused(text: str) -> None:
    found = Problems()
    value = Evaluator({}, parameter, DEPLOYMENT, found).value(f"[{text}]", "here")
    assert (value is BROKEN) == bool(found)


SIMPLE = ["'a'", "''", "'1'", "-1", "0", "99999", "true()", "null()", "'{0}'", "'A.B/c'", "parameters('list')"]
MADE = ["createArray()", "createArray('a', 2)", "createObject()", "createObject('a', 1)"]
ARGUMENTS = st.sampled_from(SIMPLE + MADE)


@given(st.sampled_from(sorted(FUNCTIONS)), st.lists(ARGUMENTS, max_size=4))
def test_any_function_of_any_values_is_evaluated_or_refused(name: str, given_values: list[str]) -> None:
    found = Problems()
    text = f"[{name}({', '.join(given_values)})]"
    value = Evaluator({}, parameter, DEPLOYMENT, found).value(text, "here")
    assert (value is BROKEN) == bool(found)


@given(st.text())
def test_a_text_in_quotes_is_itself(text: str) -> None:
    quoted = "['" + text.replace("'", "''") + "']"
    assert is_expression(quoted)
    assert evaluated(quoted) == text
    assert parse_expression(quoted)
