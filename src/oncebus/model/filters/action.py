"""Actions: the changes that a rule makes to its copy of a message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from oncebus.model.filters import closures, tree
from oncebus.model.filters.errors import EvaluationFailure
from oncebus.model.filters.filter import checked_parameters, failure_text
from oncebus.model.filters.operators import kind_name, text_of
from oncebus.model.filters.parser import action_tree
from oncebus.model.filters.properties import LONGEST_ID, SETTABLE, SHORT, Properties
from oncebus.values.sizes import utf16_length

_STEPS_PER_PROPERTY = 500
"""The cost per user property of a changed copy, because the copy encodes all user properties again."""

Change = Callable[[Properties, dict[str, object], dict[str, object]], None]
"""Evaluates a statement on the properties, and changes one of their two dictionaries: system or user properties."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The result of an action that failed on a message. `error` says why."""

    error: str


class Action:
    """A sequence of SET and REMOVE statements. Created by `parse_action`. Can be pickled."""

    __slots__ = ("_changes", "parameters", "text", "tree")

    def __init__(self, text: str, parameters: Mapping[str, object] | None = None) -> None:
        self.text = text
        self.parameters = dict(parameters or {})
        self.tree = action_tree(text)
        values = checked_parameters(self.tree, self.parameters, "action")
        self._changes = [_change(statement, values) for statement in self.tree]

    def apply(self, properties: Properties, seed: bytes = b"") -> Properties | Failure:
        """Return the properties after all statements, or a `Failure`. Never raises.

        The statements run in order, and each sees the changes of those before it. If one fails, there is no result.
        The given properties are not changed. newid() derives its values from `seed`.
        """
        try:
            budget = properties.budget
            budget.start_rule()
            budget.spend(_STEPS_PER_PROPERTY * len(properties.user))
            system, user = dict(properties.system), dict(properties.user)
            changing = Properties(system, user, seed=seed, budget=budget)
            for change in self._changes:
                change(changing, system, user)
            return Properties(system, user, budget=budget)
        except Exception as error:
            return Failure(failure_text(error))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Action) and (self.text, self.parameters) == (other.text, other.parameters)

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Action({self.text!r}, {self.parameters!r})"

    def __reduce__(self) -> tuple[Callable[..., Action], tuple[str, dict[str, object]]]:
        return Action, (self.text, self.parameters)


def parse_action(text: str, parameters: Mapping[str, object] | None = None) -> Action:
    """Parse an action in the SQL action language of Service Bus. Raises `BadRule`.

    `parameters` works as in `parse_filter`.
    """
    return Action(text, parameters)


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
    def remove(_: Properties, system: dict[str, object], __: dict[str, object]) -> None:
        system.pop(name, None)

    return remove


def _remove_user(name: str) -> Change:
    def remove(properties: Properties, _: dict[str, object], user: dict[str, object]) -> None:
        spelling = properties.spelling(name)
        if spelling is not None:
            del user[spelling]
            properties.removed()

    return remove


def _set_system(name: str, value: closures.Evaluate) -> Change:
    def change(properties: Properties, system: dict[str, object], _: dict[str, object]) -> None:
        result = _system_value(name, value(properties))
        if result is None:
            system.pop(name, None)
        else:
            system[name] = result

    return change


def _set_user(name: str, value: closures.Evaluate) -> Change:
    def change(properties: Properties, _: dict[str, object], user: dict[str, object]) -> None:
        result = value(properties)
        if isinstance(result, str | bytes):
            # Every copy is written in full, so a few statements could make a message many times larger.
            properties.budget.spend(len(result))
        spelling = properties.spelling(name)
        if spelling is None:
            spelling = name
            properties.added(name)
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
