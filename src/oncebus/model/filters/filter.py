"""Compiles filters into conditions, which decide which messages a rule selects."""

from __future__ import annotations

import dataclasses
import math
import uuid
from collections.abc import Mapping
from typing import Final

from oncebus.model.filters import closures, tree
from oncebus.model.filters.errors import BadRule, EvaluationFailure
from oncebus.model.filters.operators import compare
from oncebus.model.filters.parser import filter_tree
from oncebus.model.filters.properties import VALUE_TYPES, MessageProperties


class Condition:
    """A compiled filter. `makes_ids` says whether it calls newid(), so that its result depends on the seed."""

    __slots__ = ("_decide", "makes_ids")

    def __init__(self, decide: closures.Decide, *, makes_ids: bool = False) -> None:
        self._decide = decide
        self.makes_ids = makes_ids

    def selects(self, message: MessageProperties, seed: bytes = b"") -> bool:
        """Return whether it selects a message. Raises `EvaluationFailure`, or any error of a strange value.

        newid() derives its values from `seed`, so the same message and seed give the same result. The cost comes out
        of the message's budget.
        """
        message.budget.start_rule()
        if self.makes_ids:
            message = dataclasses.replace(message, seed=seed)
        # The language has three truth values: unknown does not select the message.
        return bool(self._decide(message))


TRUE: Final = Condition(lambda message: True)  # noqa: ARG005
FALSE: Final = Condition(lambda message: False)  # noqa: ARG005


def parse_filter(text: str, parameters: Mapping[str, object] | None = None) -> Condition:
    """Compile a filter in the SQL filter language of Service Bus. Raises `BadRule`.

    `parameters` maps the names of @parameters, with or without the @, to their values. Each value must have one of the
    types in `Value`.
    """
    root = filter_tree(text)
    decide = closures.predicate(root, check_parameters(root, parameters or {}, "filter"))
    return Condition(decide, makes_ids=any(isinstance(node, tree.NewId) for node in _nodes_of(root)))


def correlate(system: Mapping[str, str], user: Mapping[str, object]) -> Condition:
    """Compile a correlation filter, which selects messages whose properties equal all the given ones.

    `system` has names of `SYSTEM_NAMES`. Names of user properties may have any letter case, as in the filter language;
    strings are compared exactly. Values of different types are not equal, except numbers. Without any property, all
    messages are selected. Raises `BadRule`.
    """
    for name, value in user.items():
        _check_value(f"property {name!r} of the correlation filter", value)

    def decide(message: MessageProperties) -> bool:
        for name, wanted in system.items():
            found = message.system.get(name)
            if found != wanted and not (isinstance(found, int | uuid.UUID) and str(found) == wanted):
                return False
        for name, value in user.items():
            key = message.spelling(name)
            if key is None or not _is_equal(message.user[key], value):
                return False
        return True

    return Condition(decide)


def check_parameters(
    root: tree.Predicate | tuple[tree.Statement, ...], given: Mapping[str, object], what: str
) -> dict[str, object]:
    """Return the parameter values under the names that the tree uses.

    Raises `BadRule` if a value is missing, given twice or of an unsupported type.
    """
    values: dict[str, object] = {}
    for name, value in given.items():
        key = name.removeprefix("@").lower()
        _check_value(f"parameter {name!r} of the {what}", value)
        if key in values:
            raise BadRule(f"The parameter {name!r} of the {what} is given twice.")
        values[key] = value
    for node in _nodes_of(root):
        if isinstance(node, tree.Parameter) and node.name not in values:
            raise BadRule(f"The {what} uses the parameter '@{node.name}', which has no value.")
    return values


def _check_value(name: str, value: object) -> None:
    """Raise `BadRule` unless rules can work with the value."""
    if not isinstance(value, VALUE_TYPES):
        raise BadRule(f"The {name} has type {type(value).__name__}, which rules do not support.")
    if isinstance(value, float) and math.isnan(value):
        raise BadRule(f"The {name} is NaN, which rules do not support.")


def _nodes_of(root: object) -> list[object]:
    """Return all nodes of a tree, in no particular order."""
    found: list[object] = []
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, tuple):
            waiting.extend(node)
        elif dataclasses.is_dataclass(node):
            found.append(node)
            waiting.extend(getattr(node, part.name) for part in dataclasses.fields(node))
    return found


def failure_text(error: Exception) -> str:
    """Return one line that says why an evaluation failed."""
    if isinstance(error, EvaluationFailure):
        return str(error)
    # The message has a value of an unexpected type, or one that is out of range for an operator.
    return f"a property has a value that cannot be used ({type(error).__name__})"


def _is_equal(found: object, wanted: object) -> bool:
    if type(found) is str or found is None:
        return found == wanted
    try:
        return compare("=", found, wanted)
    except EvaluationFailure:
        return False
