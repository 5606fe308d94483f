"""The parameters of a template: checks the given values against the declarations.

    "parameters": {"size": {"type": "int", "defaultValue": 1024, "allowedValues": [1024, 2048]}}

Values have the form of a parameter file, {"size": {"value": 2048}}, and are literal: only defaults may contain
expressions. Errors never quote the value of a secure parameter.
"""

from __future__ import annotations

from collections.abc import Callable

from oncebus.protocols.management.documents import Object, find, is_object, kind_of, parse_document, written_name
from oncebus.protocols.management.problems import AlreadyReported, Fault, Problems, hint, member, nearest
from oncebus.protocols.templates.evaluation import Lazy
from oncebus.protocols.templates.scope import Value

MOST = 256
"""The maximum number of parameters of a template. It is the Resource Manager's limit."""

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "securestring": (str,),
    "int": (int,),
    "bool": (bool,),
    "object": (dict,),
    "secureobject": (dict,),
    "array": (list,),
}
_LIMITS: dict[str, tuple[Callable[[Value, int], bool], str]] = {
    "minvalue": (lambda value, limit: value >= limit, "is less than"),
    "maxvalue": (lambda value, limit: value <= limit, "is more than"),
    "minlength": (lambda value, limit: len(value) >= limit, "is shorter than"),
    "maxlength": (lambda value, limit: len(value) <= limit, "is longer than"),
}


class Parameters:
    """The values of a template's parameters, each checked on first use."""

    def __init__(
        self, declared: Object, given: Object, evaluate: Callable[[Value, str], Value], problems: Problems
    ) -> None:
        self._given = given
        self._evaluate = evaluate
        self._problems = problems
        self._values = Lazy("parameter", declared, self._evaluate_one)
        self._declared = declared

    def get(self, name: str) -> Value:
        """Return the value of a parameter. Raises `Fault`."""
        return self._values.get(name)

    def check(self) -> None:
        """Record the problems of all parameters, used or not, and each given value that is not declared."""
        if len(self._declared) > MOST or len(self._given) > MOST:
            many = max(len(self._declared), len(self._given))
            self._problems.add("parameters", f"There are {many} parameters; {MOST} is the limit.")
            return
        for name in self._values.names:
            with self._problems.record_at(member("parameters", name)):
                self._values.get(name)
        for name in self._given:
            if written_name(self._declared, name) is None:
                meant = hint(nearest(name, self._declared))
                self._problems.add("", f"The parameter '{name}' is given, but the template does not declare it.{meant}")

    def _evaluate_one(self, name: str, about: Value) -> Value:
        path = member("parameters", name)
        try:
            if not is_object(about):
                raise Fault(f"The declaration of a parameter must be an object, not {kind_of(about)}.")
            kind = type_of(about)
            if kind is None:
                raise Fault(f"The type {find(about, 'type')!r} is not one of {', '.join(_TYPES)}.")
            written, default = written_name(self._given, name), written_name(about, "defaultValue")
            if written is not None:
                value = _given_value(self._given[written], name)
            elif default is not None:
                path = member(path, default)
                value = self._evaluate(about[default], path)
            elif find(about, "nullable") is True:
                return None
            else:
                raise Fault("The parameter has no value and no default. Give a value.")
            _check(value, about, kind)
        except AlreadyReported:
            raise
        except Fault as error:
            self._problems.add(path, str(error))
            raise AlreadyReported from None
        return value


def type_of(about: Object) -> str | None:
    """Return the declared type of a parameter, in lower case; None if it is missing or unknown."""
    kind = find(about, "type")
    return kind.lower() if isinstance(kind, str) and kind.lower() in _TYPES else None


def value_from_text(text: str, about: Object) -> Value:
    """Parse a value from the command line, according to the parameter's declared type. Raises `Fault`."""
    match type_of(about):
        case "int":
            digits = text.strip().removeprefix("-")
            if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
                raise Fault(f"The value '{text}' is not an int.")
            return int(text)
        case "bool":
            if text.strip().lower() not in ("true", "false"):
                raise Fault(f"The value '{text}' is not true or false.")
            return text.strip().lower() == "true"
        case "object" | "secureobject" | "array":
            return parse_document(text)
    return text


def _given_value(given: Value, name: str) -> Value:
    if is_object(given) and find(given, "reference") is not None:
        raise Fault("The value is a reference to a key vault. Such values are not supported.")
    if not is_object(given) or written_name(given, "value") is None:
        raise Fault(f"The value does not have the form {{'{name}': {{'value': …}}}}.")
    return find(given, "value")


def _check(value: Value, about: Object, kind: str) -> None:
    is_secret = kind.startswith("secure")
    shown = "The value" if is_secret else f"The value {repr(value)[:80]}"
    if value is None and find(about, "nullable") is True:
        return
    if not isinstance(value, _TYPES[kind]) or (kind == "int" and isinstance(value, bool)):
        raise Fault(f"{shown} is {kind_of(value)}, but the parameter's type is {find(about, 'type')}.")
    allowed = find(about, "allowedValues")
    if isinstance(allowed, list) and value not in allowed and not _are_all_in(value, allowed):
        raise Fault(f"{shown} is not one of {', '.join(map(repr, allowed))}.")
    for name, (holds, words) in _LIMITS.items():
        limit = find(about, name)
        is_of_size = isinstance(value, int) if name.endswith("value") else isinstance(value, str | list)
        if isinstance(limit, int) and is_of_size and not holds(value, limit):
            raise Fault(f"{shown} {words} {limit}.")


def _are_all_in(value: Value, allowed: list[Value]) -> bool:
    """Return whether the value is an array whose items are all allowed.

    For an array parameter, `allowedValues` may list single items instead of whole arrays.
    """
    return isinstance(value, list) and all(each in allowed for each in value)
