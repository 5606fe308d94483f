"""The nodes of a rule's tree. Parsing creates only these nodes, and evaluation knows no others."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Constant:
    """A string, a 64-bit integer, a double, TRUE, FALSE or NULL."""

    value: str | int | float | bool | None

    def __eq__(self, other: object) -> bool:
        # 1, 1.0 and TRUE are equal in Python but are different constants of the language.
        return isinstance(other, Constant) and (type(self.value), self.value) == (type(other.value), other.value)

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


@dataclass(frozen=True, slots=True)
class Parameter:
    """@name. The caller passes the value separately from the text."""

    name: str


@dataclass(frozen=True, slots=True)
class SystemProperty:
    """sys.name, in the spelling of `SYSTEM_NAMES`."""

    name: str


@dataclass(frozen=True, slots=True)
class UserProperty:
    """A user property, written as `name` or `user.name`. `name` keeps its letter case."""

    name: str


@dataclass(frozen=True, slots=True)
class PropertyCall:
    """property(name) or p(name)."""

    name: Expression


@dataclass(frozen=True, slots=True)
class NewId:
    """newid(). `number` distinguishes the calls within one text."""

    number: int


@dataclass(frozen=True, slots=True)
class Sign:
    """+ or - before an expression."""

    operator: str
    operand: Expression


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """One of + - * / % between two expressions. + also concatenates strings."""

    operator: str
    left: Expression
    right: Expression


Property = SystemProperty | UserProperty
Expression = Constant | Parameter | SystemProperty | UserProperty | PropertyCall | NewId | Sign | Arithmetic


@dataclass(frozen=True, slots=True)
class Comparison:
    """One of = <> < <= > >= between two expressions."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class IsNull:
    """property IS NULL."""

    operand: SystemProperty | UserProperty | PropertyCall


@dataclass(frozen=True, slots=True)
class Exists:
    """EXISTS (property)."""

    property: Property


@dataclass(frozen=True, slots=True)
class In:
    """expression IN (expression, ...)."""

    operand: Expression
    members: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Like:
    """expression LIKE pattern [ESCAPE character]."""

    operand: Expression
    pattern: Expression
    escape: Expression | None


@dataclass(frozen=True, slots=True)
class Not:
    """NOT predicate; also the NOT of NOT IN, NOT LIKE and IS NOT NULL."""

    operand: Predicate


@dataclass(frozen=True, slots=True)
class And:
    """Two or more predicates, evaluated from left to right."""

    operands: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Two or more predicates, evaluated from left to right."""

    operands: tuple[Predicate, ...]


Predicate = Comparison | IsNull | Exists | In | Like | Not | And | Or


@dataclass(frozen=True, slots=True)
class Set:
    """SET property = expression."""

    property: Property
    value: Expression


@dataclass(frozen=True, slots=True)
class Remove:
    """REMOVE property."""

    property: Property


Statement = Set | Remove
