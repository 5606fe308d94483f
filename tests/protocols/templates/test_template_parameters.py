from __future__ import annotations

from typing import Any

import pytest

from oncebus.protocols.management.problems import Fault, Problems
from oncebus.protocols.templates.parameters import value_from_text
from oncebus.protocols.templates.template import read_template


def wrong(declared: dict[str, Any], given: dict[str, Any] | None = None) -> dict[str, str]:
    found = Problems()
    read_template({"parameters": declared, "resources": []}, given or {}, found)
    return {problem.path: problem.text for problem in found}


def value(declared: dict[str, Any], given: dict[str, Any] | None = None) -> str:
    """Return the name of a queue that is the parameter `p`."""
    found = Problems()
    queue = {"type": "Microsoft.ServiceBus/namespaces/queues", "name": "[concat('n/', parameters('P'))]"}
    wanted = read_template({"parameters": declared, "resources": [queue]}, given or {}, found)
    assert not found, list(found)
    return wanted.entities[0].name


def test_a_given_value_overrides_the_default() -> None:
    declared = {"p": {"type": "string", "defaultValue": "usual"}}
    assert value(declared) == "usual"
    assert value(declared, {"p": {"value": "mine"}}) == "mine"
    assert value(declared, {"P": {"value": "[concat('taken as it stands')]"}}) == "[concat('taken as it stands')]"


def test_a_default_may_be_an_expression_over_other_parameters() -> None:
    declared = {"p": {"type": "String", "defaultValue": "[concat(parameters('q'), '-', resourceGroup().name)]"}}
    assert value(declared | {"q": {"type": "string", "defaultValue": "a"}}) == "a-local"
    assert wrong({"p": {"type": "string", "defaultValue": "[parameters('p')]"}}) == {
        "parameters.p.defaultValue": "The parameter 'p' depends on itself: p → p."
    }


@pytest.mark.parametrize(
    ("about", "given", "path", "said"),
    [
        ({"type": "string"}, None, "parameters.p", "The parameter has no value and no default. Give a value."),
        ({"type": "strong"}, 1, "parameters.p", "The type 'strong' is not one of string, securestring, int, bool"),
        ({}, 1, "parameters.p", "The type None is not one of"),
        ("string", 1, "parameters.p", "The declaration of a parameter must be an object, not string."),
        ({"type": "int"}, "5", "parameters.p", "The value '5' is string, but the parameter's type is int."),
        ({"type": "int"}, True, "parameters.p", "The value True is bool, but the parameter's type is int."),
        ({"type": "bool"}, 1, "parameters.p", "The value 1 is int, but the parameter's type is bool."),
        ({"type": "array"}, {}, "parameters.p", "The value {} is object, but the parameter's type is array."),
        ({"type": "object"}, [], "parameters.p", "The value [] is array, but the parameter's type is object."),
        ({"type": "string", "allowedValues": ["a", "b"]}, "c", "parameters.p", "The value 'c' is not one of 'a', 'b'."),
        ({"type": "int", "minValue": 5}, 4, "parameters.p", "The value 4 is less than 5."),
        ({"type": "int", "maxValue": 5}, 6, "parameters.p", "The value 6 is more than 5."),
        ({"type": "string", "minLength": 2}, "a", "parameters.p", "The value 'a' is shorter than 2."),
        ({"type": "array", "maxLength": 1}, [1, 2], "parameters.p", "The value [1, 2] is longer than 1."),
        ({"type": "string", "defaultValue": 7}, None, "parameters.p.defaultValue", "The value 7 is int"),
        ({"type": "string", "defaultValue": "[x()]"}, None, "parameters.p.defaultValue", "The function 'x' is unknown"),
    ],
)
def test_a_value_that_violates_its_declaration_is_an_error(about: object, given: object, path: str, said: str) -> None:
    found = wrong({"p": about}, {} if given is None else {"p": {"value": given}})
    assert list(found) == [path]
    assert said in found[path]


def test_the_value_of_a_secure_parameter_is_in_no_error() -> None:
    found = wrong({"p": {"type": "secureString", "maxLength": 3}}, {"p": {"value": "hunter2"}})
    assert found == {"parameters.p": "The value is longer than 3."}


def test_undeclared_values_are_reported() -> None:
    found = wrong({"window": {"type": "string", "defaultValue": ""}}, {"windows": {"value": "PT1H"}})
    assert found == {
        "": "The parameter 'windows' is given, but the template does not declare it. Did you mean 'window'?"
    }


def test_values_have_the_form_of_a_parameter_file() -> None:
    declared = {"p": {"type": "string"}}
    assert "not have the form {'p': {'value': …}}" in wrong(declared, {"p": "plain"})["parameters.p"]
    assert "reference to a key vault" in wrong(declared, {"p": {"reference": {}}})["parameters.p"]


def test_allowed_values_of_an_array_may_be_its_items() -> None:
    about = {"type": "array", "allowedValues": ["a", "b"]}
    assert wrong({"p": about}, {"p": {"value": ["b", "a"]}}) == {}
    assert "is not one of" in wrong({"p": about}, {"p": {"value": ["c"]}})["parameters.p"]


def test_a_nullable_parameter_may_be_left_out() -> None:
    assert wrong({"p": {"type": "string", "nullable": True}}) == {}


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("string", "007", "007"),
        ("securestring", "x=y", "x=y"),
        ("int", "-7", -7),
        ("bool", "True", True),
        ("array", '["a"]', ["a"]),
        ("object", '{"a": 1}', {"a": 1}),
        ("strange", "text", "text"),
    ],
)
def test_a_text_on_the_command_line_is_read_by_the_declared_type(kind: str, text: str, expected: object) -> None:
    assert value_from_text(text, {"type": kind}) == expected


@pytest.mark.parametrize(("kind", "text"), [("int", "x"), ("int", "1.5"), ("bool", "yes"), ("array", "[")])
def test_a_text_that_does_not_fit_the_declared_type_is_refused(kind: str, text: str) -> None:
    with pytest.raises(Fault):
        value_from_text(text, {"type": kind})
