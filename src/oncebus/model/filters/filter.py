"""Filters: they decide which messages a rule selects."""

from __future__ import annotations

import dataclasses
import enum
import math
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from oncebus.model.filters import closures, tree
from oncebus.model.filters.errors import BadRule, EvaluationFailure
from oncebus.model.filters.operators import compare
from oncebus.model.filters.parser import filter_tree
from oncebus.model.filters.properties import VALUE_TYPES, Properties


class Decision(enum.Enum):
    """The decision of a filter about a message."""

    MATCH = "match"
    NO_MATCH = "no match"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of a filter on a message. `error` is set if the decision is ERROR."""

    decision: Decision
    error: str | None = None


MATCH: Final = Evaluation(Decision.MATCH)
NO_MATCH: Final = Evaluation(Decision.NO_MATCH)


class Filter(ABC):
    """A condition that selects messages. Can be pickled.

    Filters with the same text and the same parameter values are equal.
    """

    makes_ids: bool = False
    """Whether the filter calls newid(), so that its result depends on the seed."""

    @abstractmethod
    def evaluate(self, properties: Properties, seed: bytes = b"") -> Evaluation:
        """Return the result for one message. Never raises, whatever the values are.

        newid() derives its values from `seed`, so the same properties and seed give the same result. The cost comes
        out of the properties' budget; a filter that needs more than is left has the decision ERROR.
        """


class SqlFilter(Filter):
    """A filter in the SQL language. Created by `parse_filter`."""

    __slots__ = ("_decide", "makes_ids", "parameters", "text", "tree")

    def __init__(self, text: str, parameters: Mapping[str, object] | None = None) -> None:
        self.text = text
        self.parameters = dict(parameters or {})
        self.tree = filter_tree(text)
        self._decide = closures.predicate(self.tree, checked_parameters(self.tree, self.parameters, "filter"))
        self.makes_ids = has_new_id(self.tree)

    def evaluate(self, properties: Properties, seed: bytes = b"") -> Evaluation:
        """See `Filter`."""
        try:
            properties.budget.start_rule()
            if self.makes_ids:
                properties = dataclasses.replace(properties, seed=seed)
            # The language has three truth values: unknown does not select the message.
            return MATCH if self._decide(properties) else NO_MATCH
        except Exception as error:
            return Evaluation(Decision.ERROR, failure_text(error))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SqlFilter) and (self.text, self.parameters) == (other.text, other.parameters)

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"SqlFilter({self.text!r}, {self.parameters!r})"

    def __reduce__(self) -> tuple[Callable[..., Filter], tuple[str, dict[str, object]]]:
        return SqlFilter, (self.text, self.parameters)


@dataclass(frozen=True, slots=True)
class BooleanFilter(Filter):
    """A filter that selects all messages, or none."""

    selects: bool

    def evaluate(self, properties: Properties, seed: bytes = b"") -> Evaluation:  # noqa: ARG002
        """See `Filter`."""
        return MATCH if self.selects else NO_MATCH


TRUE: Final = BooleanFilter(True)
FALSE: Final = BooleanFilter(False)


@dataclass(frozen=True, slots=True)
class CorrelationFilter(Filter):
    """A filter that selects messages whose properties equal all the given ones.

    Names may have any letter case, as in the filter language; strings are compared exactly. Values of different types
    are not equal, except numbers. Without any condition the filter selects all messages.
    """

    correlation_id: str | None = None
    message_id: str | None = None
    to: str | None = None
    reply_to: str | None = None
    label: str | None = None
    session_id: str | None = None
    reply_to_session_id: str | None = None
    content_type: str | None = None
    properties: Mapping[str, object] = field(default_factory=dict, hash=False)
    _system: tuple[tuple[str, str], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        wanted = {
            "CorrelationId": self.correlation_id,
            "MessageId": self.message_id,
            "To": self.to,
            "ReplyTo": self.reply_to,
            "Label": self.label,
            "SessionId": self.session_id,
            "ReplyToSessionId": self.reply_to_session_id,
            "ContentType": self.content_type,
        }
        for name, value in self.properties.items():
            check_value(f"property {name!r} of the correlation filter", value)
        given = tuple((name, value) for name, value in wanted.items() if value is not None)
        object.__setattr__(self, "_system", given)

    def evaluate(self, properties: Properties, seed: bytes = b"") -> Evaluation:  # noqa: ARG002
        """See `Filter`."""
        try:
            system, user = properties.system, properties.user
            for name, wanted in self._system:
                found = system.get(name)
                if found != wanted and not (isinstance(found, int | uuid.UUID) and str(found) == wanted):
                    return NO_MATCH
            for name, value in self.properties.items():
                key = properties.spelling(name)
                if key is None or not _is_equal(user[key], value):
                    return NO_MATCH
        except Exception as error:
            return Evaluation(Decision.ERROR, failure_text(error))
        return MATCH


def parse_filter(text: str, parameters: Mapping[str, object] | None = None) -> Filter:
    """Parse a filter in the SQL filter language of Service Bus. Raises `BadRule`.

    `parameters` maps the names of @parameters, with or without the @, to their values. Each value must have one of the
    types in `Value`.
    """
    return SqlFilter(text, parameters)


def checked_parameters(
    root: tree.Predicate | tuple[tree.Statement, ...], given: Mapping[str, object], what: str
) -> dict[str, object]:
    """Return the parameter values under the names that the tree uses.

    Raises `BadRule` if a value is missing, given twice or of an unsupported type.
    """
    values: dict[str, object] = {}
    for name, value in given.items():
        key = name.removeprefix("@").lower()
        check_value(f"parameter {name!r} of the {what}", value)
        if key in values:
            raise BadRule(f"The parameter {name!r} of the {what} is given twice.")
        values[key] = value
    for node in nodes_of(root):
        if isinstance(node, tree.Parameter) and node.name not in values:
            raise BadRule(f"The {what} uses the parameter '@{node.name}', which has no value.")
    return values


def check_value(name: str, value: object) -> None:
    """Raise `BadRule` unless rules can work with the value."""
    if not isinstance(value, VALUE_TYPES):
        raise BadRule(f"The {name} has type {type(value).__name__}, which rules do not support.")
    if isinstance(value, float) and math.isnan(value):
        raise BadRule(f"The {name} is NaN, which rules do not support.")


def nodes_of(root: object) -> list[object]:
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


def has_new_id(root: object) -> bool:
    """Return whether a tree calls newid(), so that its evaluation needs a seed."""
    return any(isinstance(node, tree.NewId) for node in nodes_of(root))


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
