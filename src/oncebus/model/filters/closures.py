"""Compiles a rule's tree into Python closures, once per rule, so that a message costs a few calls and no tree walk.

A closure takes the properties of one message. The closure of an expression returns its value, and that of a predicate
True or False; both return None for unknown. A closure raises `EvaluationFailure` if there is no value or if it would
cost too much: it charges the message's budget before any work that grows with the values of the message. AND and OR
evaluate from left to right and stop once the result is certain. The operands after that are not evaluated, so they
cannot fail.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Mapping

from oncebus.model.filters import tree
from oncebus.model.filters.errors import EvaluationFailure
from oncebus.model.filters.like import BadPattern, matcher, steps_to_read
from oncebus.model.filters.operators import (
    COMPARISONS,
    INTEGERS,
    apply_sign,
    calculate,
    compare,
    kind_name,
    within_64_bits,
)
from oncebus.model.filters.properties import IDENTIFIERS, Duration, Instant, MessageProperties, system_name

Evaluate = Callable[[MessageProperties], object]
Decide = Callable[[MessageProperties], bool | None]
Parameters = Mapping[str, object]

_LONG = (str, bytes)
_SIMPLE = (str, int, float, Instant, Duration)
"""Types whose values Python compares as the filter language does, if both sides have exactly that type."""


def expression(node: tree.Expression, parameters: Parameters) -> Evaluate:
    """Return the closure of an expression."""
    if _is_known(node):
        value = _value_of(node, parameters)
        return lambda properties: value  # noqa: ARG005
    match node:
        case tree.UserProperty(name):
            return _user(name)
        case tree.SystemProperty(name):
            return _system(name)
        case tree.PropertyCall(name):
            return _property_call(expression(name, parameters))
        case tree.NewId(number):
            return lambda properties: new_id(properties.seed, number)
        case tree.Sign(symbol, operand):
            return _sign(symbol, expression(operand, parameters))
        case tree.Arithmetic(symbol, left, right):
            return _arithmetic(symbol, expression(left, parameters), expression(right, parameters))
    raise TypeError(f"{type(node).__name__} is not an expression")


def predicate(node: tree.Predicate, parameters: Parameters) -> Decide:
    """Return the closure of a predicate."""
    match node:
        case tree.And(operands):
            return _and([predicate(operand, parameters) for operand in operands])
        case tree.Or(operands):
            return _or([predicate(operand, parameters) for operand in operands])
        case tree.Not(operand):
            return _not(predicate(operand, parameters))
        case tree.Comparison(symbol, left, right):
            if _is_known(right):
                return _comparison_with(symbol, expression(left, parameters), _value_of(right, parameters))
            return _comparison(symbol, expression(left, parameters), expression(right, parameters))
        case tree.IsNull(operand):
            value = expression(operand, parameters)
            return lambda properties: value(properties) is None
        case tree.Exists(named):
            return _exists(named)
        case tree.In(operand, members):
            return _in(expression(operand, parameters), members, parameters)
        case tree.Like(operand, pattern, escape):
            return _like(expression(operand, parameters), pattern, escape, parameters)


def new_id(seed: bytes, number: int) -> uuid.UUID:
    """Return the UUID of one newid() call for one message. The same seed and number give the same UUID."""
    digest = hashlib.blake2b(seed, digest_size=16, salt=number.to_bytes(16, "big")).digest()
    return uuid.UUID(bytes=digest, version=4)


def _is_known(node: tree.Expression) -> bool:
    if isinstance(node, tree.Sign):
        return isinstance(node.operand, tree.Constant) and type(node.operand.value) in (int, float)
    return isinstance(node, tree.Constant | tree.Parameter)


def _value_of(node: tree.Expression, parameters: Parameters) -> object:
    """Return the value of a node for which `_is_known` returned true."""
    match node:
        case tree.Constant(value):
            return value
        case tree.Parameter(name):
            return parameters[name]
        case tree.Sign(symbol, tree.Constant(value)):
            return apply_sign(symbol, value)
    raise TypeError(f"{type(node).__name__} has no value without a message")


def _user(name: str) -> Evaluate:
    def read(properties: MessageProperties) -> object:
        value = properties.user.get(name)
        if value is not None:
            return value
        spelling = properties.spelling(name)
        return None if spelling is None else properties.user[spelling]

    return read


def _system(name: str) -> Evaluate:
    if name not in IDENTIFIERS:
        return lambda properties: properties.system.get(name)

    def read(properties: MessageProperties) -> object:
        value = properties.system.get(name)
        return str(value) if isinstance(value, int | uuid.UUID) else value

    return read


def _property_call(name: Evaluate) -> Evaluate:
    def read(properties: MessageProperties) -> object:
        full_name = name(properties)
        if full_name is None:
            return None
        if not isinstance(full_name, str):
            raise EvaluationFailure(f"property() takes the name of a property, not {kind_name(full_name)}")
        properties.budget.spend(len(full_name))
        scope, dot, rest = full_name.partition(".")
        if dot and scope.lower() == "sys":
            known = system_name(rest)
            if known is None:
                raise EvaluationFailure(f"there is no system property {rest[:40]!r}")
            return _system(known)(properties)
        return _user(rest if dot and scope.lower() == "user" else full_name)(properties)

    return read


def _exists(named: tree.Property) -> Decide:
    name = named.name
    if isinstance(named, tree.UserProperty):
        return lambda properties: properties.spelling(name) is not None
    return lambda properties: properties.system.get(name) is not None


def _sign(symbol: str, operand: Evaluate) -> Evaluate:
    def evaluate(properties: MessageProperties) -> object:
        value = operand(properties)
        return None if value is None else apply_sign(symbol, value)

    return evaluate


def _arithmetic(symbol: str, left: Evaluate, right: Evaluate) -> Evaluate:
    shortcut = INTEGERS.get(symbol)

    def evaluate(properties: MessageProperties) -> object:
        first, second = left(properties), right(properties)
        if shortcut is not None and type(first) is int and type(second) is int:
            return within_64_bits(shortcut(first, second), symbol)
        if first is None or second is None:
            return None
        result = calculate(symbol, first, second)
        if type(result) is str:
            # `calculate` limits the length of its result, so charging after the work is safe here.
            properties.budget.spend(len(result))
        return result

    return evaluate


def _and(operands: list[Decide]) -> Decide:
    def decide(properties: MessageProperties) -> bool | None:
        result: bool | None = True
        for operand in operands:
            truth = operand(properties)
            if truth is False:
                return False
            if truth is None:
                result = None
        return result

    return decide


def _or(operands: list[Decide]) -> Decide:
    def decide(properties: MessageProperties) -> bool | None:
        result: bool | None = False
        for operand in operands:
            truth = operand(properties)
            if truth is True:
                return True
            if truth is None:
                result = None
        return result

    return decide


def _not(operand: Decide) -> Decide:
    def decide(properties: MessageProperties) -> bool | None:
        truth = operand(properties)
        return None if truth is None else not truth

    return decide


def _comparison(symbol: str, left: Evaluate, right: Evaluate) -> Decide:
    def decide(properties: MessageProperties) -> bool | None:
        first, second = left(properties), right(properties)
        if first is None or second is None:
            return None
        _charge_comparison(properties, first, second)
        return compare(symbol, first, second)

    return decide


def _comparison_with(symbol: str, left: Evaluate, known: object) -> Decide:
    """Return a faster closure for the most common comparison: with a literal or a parameter."""
    kind = type(known)
    if kind not in _SIMPLE:
        return _comparison(symbol, left, lambda properties: known)  # noqa: ARG005
    operator = COMPARISONS[symbol]

    def decide(properties: MessageProperties) -> bool | None:
        value = left(properties)
        if type(value) is kind:
            return operator(value, known)
        return None if value is None else compare(symbol, value, known)

    return decide


def _charge_comparison(properties: MessageProperties, first: object, second: object) -> None:
    if isinstance(first, _LONG) and isinstance(second, _LONG):
        # The processor compares many characters at a time.
        steps = min(len(first), len(second)) // 16
        if steps:
            properties.budget.spend(steps)


def _in(operand: Evaluate, members: tuple[tree.Expression, ...], parameters: Parameters) -> Decide:
    values = [expression(member, parameters) for member in members]

    def decide(properties: MessageProperties) -> bool | None:
        sought = operand(properties)
        if sought is None:
            return None
        result: bool | None = False
        for value in values:
            member = value(properties)
            if member is None:
                result = None
            else:
                _charge_comparison(properties, sought, member)
                if compare("=", sought, member):
                    return True
        return result

    known = [_value_of(member, parameters) for member in members if _is_known(member)]
    if len(known) < len(members) or {type(member) for member in known} not in ({str}, {int}):
        return decide
    kind, among = type(known[0]), frozenset(known)

    def decide_by_set(properties: MessageProperties) -> bool | None:
        sought = operand(properties)
        return sought in among if type(sought) is kind else decide(properties)

    return decide_by_set


def _like(
    operand: Evaluate, pattern: tree.Expression, escape: tree.Expression | None, parameters: Parameters
) -> Decide:
    pattern_value = expression(pattern, parameters)
    escape_value = None if escape is None else expression(escape, parameters)

    def decide(properties: MessageProperties) -> bool | None:
        value, wanted = operand(properties), pattern_value(properties)
        mark = None if escape_value is None else escape_value(properties)
        if value is None or wanted is None or (mark is None and escape_value is not None):
            return None
        if not isinstance(value, str) or not isinstance(wanted, str) or not isinstance(mark, str | None):
            wrong = next(given for given in (value, wanted, mark) if not isinstance(given, str))
            raise EvaluationFailure(f"LIKE takes strings, not {kind_name(wrong)}")
        # Charged even if the matcher is cached: the cost of a message must not depend on the messages before it.
        properties.budget.spend(steps_to_read(wanted))
        try:
            matches = matcher(wanted, mark)
        except BadPattern as error:
            raise EvaluationFailure(str(error)) from None
        properties.budget.spend(matches.steps(value))
        return matches(value)

    if not _is_known(pattern) or (escape is not None and not _is_known(escape)):
        return decide
    known = _value_of(pattern, parameters)
    mark = None if escape is None else _value_of(escape, parameters)
    if not isinstance(known, str) or not isinstance(mark, str | None) or (escape and mark is None):
        return decide
    try:
        made = matcher(known, mark)
    except BadPattern:
        return decide
    matches, at_least, per_character = made.matches, made.steps_at_least, made.steps_per_character

    def decide_by_known(properties: MessageProperties) -> bool | None:
        value = operand(properties)
        if type(value) is not str:
            return decide(properties)
        properties.budget.spend(at_least + per_character * len(value))
        return matches(value)

    return decide_by_known
