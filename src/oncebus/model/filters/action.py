"""Actions: the changes that a rule makes to its copy of a message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal

from oncebus.model.filters import closures, tree
from oncebus.model.filters.errors import EvaluationFailure
from oncebus.model.filters.filter import check_parameters
from oncebus.model.filters.operators import kind_name, text_of
from oncebus.model.filters.parser import action_tree
from oncebus.model.filters.properties import LONGEST_ID, SETTABLE, SHORT, MessageProperties
from oncebus.values.sizes import utf16_length

_STEPS_PER_PROPERTY = 500
"""The cost per user property of a changed copy, because the copy encodes all user properties again."""

Change = Callable[[MessageProperties, dict[str, object], dict[str, object]], None]
"""Evaluates a statement on the properties, and changes one of their two dictionaries: system or user properties."""


class CompiledAction:
    """A sequence of SET and REMOVE statements. Created by `parse_action`."""

    __slots__ = ("_changes",)

    def __init__(self, changes: list[Change]) -> None:
        self._changes = changes

    def apply(self, message: MessageProperties, seed: bytes = b"") -> MessageProperties:
        """Return the properties after all statements. Raises `EvaluationFailure`, or any error of a strange value.

        The statements run in order, and each sees the changes of those before it. If one fails, there is no result.
        The given properties are not changed. newid() derives its values from `seed`.
        """
        budget = message.budget
        budget.start_rule()
        budget.spend(_STEPS_PER_PROPERTY * len(message.user))
        system, user = dict(message.system), dict(message.user)
        changing = MessageProperties(system, user, seed=seed, budget=budget)
        for change in self._changes:
            change(changing, system, user)
        return MessageProperties(system, user, budget=budget)


def parse_action(text: str, parameters: Mapping[str, object] | None = None) -> CompiledAction:
    """Compile an action in the SQL action language of Service Bus. Raises `BadRule`.

    `parameters` works as in `parse_filter`.
    """
    statements = action_tree(text)
    values = check_parameters(statements, parameters or {}, "action")
    return CompiledAction([_change(statement, values) for statement in statements])


def _change(statement: tree.Statement, parameters: closures.Parameters) -> Change:
    match statement:
        case tree.Remove(tree.SystemProperty(name)):
            return _remove_system(name)
        case tree.Remove(tree.UserProperty(name)):
            return _remove_user(name)
        case tree.Set(tree.SystemProperty(name), value):
            return _set_system(name, closures.expression(value, parameters))
        case tree.Set(tree.UserProperty(name), value):
            return _set_user(name, closures.expression(value, parameters))
    raise TypeError(f"{type(statement).__name__} is not a statement")


def _remove_system(name: str) -> Change:
    def remove(_: MessageProperties, system: dict[str, object], __: dict[str, object]) -> None:
        system.pop(name, None)

    return remove


def _remove_user(name: str) -> Change:
    def remove(properties: MessageProperties, _: dict[str, object], user: dict[str, object]) -> None:
        spelling = properties.spelling(name)
        if spelling is not None:
            del user[spelling]
            properties.forget_spellings()

    return remove


def _set_system(name: str, value: closures.Evaluate) -> Change:
    def change(properties: MessageProperties, system: dict[str, object], _: dict[str, object]) -> None:
        result = _system_value(name, value(properties))
        if result is None:
            system.pop(name, None)
        else:
            system[name] = result

    return change


def _set_user(name: str, value: closures.Evaluate) -> Change:
    def change(properties: MessageProperties, _: dict[str, object], user: dict[str, object]) -> None:
        result = value(properties)
        if isinstance(result, str | bytes):
            # Every copy is written in full, so a few statements could make a message many times larger.
            properties.budget.spend(len(result))
        spelling = properties.spelling(name)
        if spelling is None:
            spelling = name
            properties.note_added(name)
        user[spelling] = _as_before(user.get(spelling), result)

    return change


def _system_value(name: str, value: object) -> object:
    kind = SETTABLE[name]
    if name == "MessageId" and value in (None, ""):
        raise EvaluationFailure("the MessageId of a message cannot be removed")
    if value is None:
        return None
    if kind is str:
        value = text_of(value) if text_of(value) is not None else value
    if not isinstance(value, kind):
        raise EvaluationFailure(f"{name} cannot be {kind_name(value)}")
    if name in SHORT and isinstance(value, str) and (size := utf16_length(value)) > LONGEST_ID:
        raise EvaluationFailure(f"{name} cannot have {size} characters; at most {LONGEST_ID} are allowed")
    return value


def _as_before(before: object, after: object) -> object:
    """Return the new value.

    An integer becomes a double or a decimal if the old value was one, as C# converts implicitly.
    """
    if isinstance(after, int) and not isinstance(after, bool):
        if isinstance(before, float):
            return float(after)
        if isinstance(before, Decimal):
            return Decimal(after)
    return after
