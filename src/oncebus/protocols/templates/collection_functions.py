"""Functions of the expression language for arrays and objects, and about the deployment."""

from __future__ import annotations

import json

from oncebus.protocols.management.documents import written_name
from oncebus.protocols.templates.calling import Arguments, function
from oncebus.protocols.templates.scope import Value
from oncebus.protocols.templates.text_functions import text_of

MOST_IN_RANGE = 10_000


@function("concat", 1, -1)
def _concat(given: Arguments) -> Value:
    if given.all_are(list):
        return [each for array in given.values for each in array]
    texts = [text_of(value) if isinstance(value, int) else given.text(at) for at, value in enumerate(given.values)]
    given.check_length(sum(map(len, texts)))
    return "".join(texts)


@function("length", is_shallow=True)
def _length(given: Arguments) -> Value:
    value = given.values[0]
    return len(value) if isinstance(value, str | list | dict) else given.array(0)


@function("empty", is_shallow=True)
def _empty(given: Arguments) -> Value:
    value = given.values[0]
    return value is None or len(value if isinstance(value, str | list | dict) else given.array(0)) == 0


@function("contains", 2)
def _contains(given: Arguments) -> Value:
    value = given.values[0]
    if isinstance(value, dict):
        return written_name(value, given.text(1)) is not None
    if isinstance(value, str):
        return given.text(1) in value
    return any(type(each) is type(given.values[1]) and each == given.values[1] for each in given.array(0))


@function("createArray", 0, -1)
def _create_array(given: Arguments) -> Value:
    return list(given.values)


@function("array")
def _array(given: Arguments) -> Value:
    value = given.values[0]
    return value if isinstance(value, list) else [value]


@function("createObject", 0, -1)
def _create_object(given: Arguments) -> Value:
    if len(given) % 2:
        raise given.fault(f"takes pairs of a name and a value, not {len(given)} arguments.")
    return {given.text(at): given.values[at + 1] for at in range(0, len(given), 2)}


@function("union", 1, -1)
def _union(given: Arguments) -> Value:
    if isinstance(given.values[0], dict):
        merged: dict[str, Value] = {}
        for at in range(len(given)):
            merged = _merged(merged, given.members(at))
        return merged
    found: dict[str, Value] = {}
    for at in range(len(given)):
        for each in given.array(at):
            found.setdefault(_canonical(each), each)
    return list(found.values())


def _canonical(value: Value) -> str:
    """Return a text that is the same for equal values only. Unlike in Python, true does not equal 1."""
    return json.dumps(value, sort_keys=True)


def _merged(one: dict[str, Value], other: dict[str, Value]) -> dict[str, Value]:
    merged = dict(one)
    spellings: dict[str, str] = {}
    for name in one:
        spellings.setdefault(name.lower(), name)
    for name, value in other.items():
        known = name if name in merged else spellings.setdefault(name.lower(), name)
        old = merged.get(known)
        merged[known] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


@function("intersection", 1, -1)
def _intersection(given: Arguments) -> Value:
    if isinstance(given.values[0], dict):
        rest = [given.members(at) for at in range(1, len(given))]
        return {name: value for name, value in given.members(0).items() if all(o.get(name) == value for o in rest)}
    others = [set(map(_canonical, given.array(at))) for at in range(1, len(given))]
    return [each for each in given.array(0) if all(_canonical(each) in other for other in others)]


@function("first", is_shallow=True)
def _first(given: Arguments) -> Value:
    value = given.values[0] if isinstance(given.values[0], str) else given.array(0)
    return value[0] if value else "" if isinstance(value, str) else None


@function("last", is_shallow=True)
def _last(given: Arguments) -> Value:
    value = given.values[0] if isinstance(given.values[0], str) else given.array(0)
    return value[-1] if value else "" if isinstance(value, str) else None


@function("take", 2)
def _take(given: Arguments) -> Value:
    value = given.values[0] if isinstance(given.values[0], str) else given.array(0)
    return value[: max(0, given.whole(1))]


@function("skip", 2)
def _skip(given: Arguments) -> Value:
    value = given.values[0] if isinstance(given.values[0], str) else given.array(0)
    return value[max(0, given.whole(1)) :]


@function("indexOf", 2)
def _index_of(given: Arguments) -> Value:
    value = given.values[0]
    if isinstance(value, str):
        return value.lower().find(given.text(1).lower())
    array = given.array(0)
    return array.index(given.values[1]) if given.values[1] in array else -1


@function("min", 1, -1)
def _min(given: Arguments) -> Value:
    return min(_numbers(given))


@function("max", 1, -1)
def _max(given: Arguments) -> Value:
    return max(_numbers(given))


def _numbers(given: Arguments) -> list[int]:
    listed = Arguments(given.name, given.array(0), given.deployment, given.loops) if given.all_are(list) else given
    if not len(listed):
        raise given.fault("needs at least one number.")
    return [listed.whole(at) for at in range(len(listed))]


@function("range", 2)
def _range(given: Arguments) -> Value:
    start, count = given.whole(0), given.whole(1)
    if not 0 <= count <= MOST_IN_RANGE:
        raise given.fault(f"makes 0 to {MOST_IN_RANGE} numbers, not {count}.")
    return list(range(start, start + count))


@function("items")
def _items(given: Arguments) -> Value:
    return [{"key": name, "value": value} for name, value in sorted(given.members(0).items())]


@function("objectKeys")
def _object_keys(given: Arguments) -> Value:
    return sorted(given.members(0))


# About the deployment


@function("copyIndex", 0, 2)
def _copy_index(given: Arguments) -> Value:
    is_named = len(given) > 0 and isinstance(given.values[0], str)
    offset = given.whole(len(given) - 1) if len(given) > is_named else 0
    return given.loops.index(given.text(0) if is_named else None) + offset


@function("resourceGroup", 0)
def _resource_group(given: Arguments) -> Value:
    return given.deployment.about_group()


@function("subscription", 0)
def _subscription(given: Arguments) -> Value:
    return given.deployment.about_subscription()


@function("deployment", 0)
def _deployment(given: Arguments) -> Value:
    return given.deployment.about_itself()


@function("resourceId", 2, -1)
def _resource_id(given: Arguments) -> Value:
    """Return the id of a resource.

    The arguments are an optional subscription, an optional group, the type, and the names.
    """
    texts = [given.text(at) for at in range(len(given))]
    at = next((at for at, text in enumerate(texts[:3]) if "/" in text), None)
    if at is None:
        raise given.fault("takes a resource type, like 'Microsoft.ServiceBus/namespaces'.")
    provider, *kinds = texts[at].strip("/").split("/")
    names = [name for text in texts[at + 1 :] for name in text.split("/")]
    if len(kinds) != len(names):
        raise given.fault(f"needs {len(kinds)} names for the type '{texts[at]}', but got {len(names)}.")
    subscription = texts[at - 2] if at > 1 else given.deployment.subscription
    group = texts[at - 1] if at > 0 else given.deployment.group
    pairs = "/".join(f"{kind}/{name}" for kind, name in zip(kinds, names, strict=True))
    return f"/subscriptions/{subscription}/resourceGroups/{group}/providers/{provider}/{pairs}"
