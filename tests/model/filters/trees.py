"""Random trees, and the text of a tree, which the parser must turn back into the same tree."""

from __future__ import annotations

import uuid
from decimal import Decimal

from hypothesis import strategies as st

from oncebus.model.filters import tree
from oncebus.model.filters.lexer import KEYWORDS
from oncebus.model.filters.properties import SYSTEM_NAMES, Duration, Instant, MessageProperties

NAMES = ["a", "b", "B", "color", "with space", "x]y", 'q"t', "like", "ödeme", "sys.Label", "_u"]
TEXTS = ["", "a", "b", "ab", "it's", "100%", "a_b", "!", "a!%", "color", "sys.Label", "sys.", "Sys.no", "User.B", "\\"]
PARAMETERS: dict[str, object] = {"text": "ab", "number": 2, "moment": Instant(5), "span": Duration(3)}

integers = st.integers(0, 4) | st.sampled_from([2**31, 2**53 + 1, 2**63 - 1])
doubles = st.sampled_from([0.0, 0.5, 1.0, 2.0, 1e-7, 1e20, 1.5e300])

constants = st.builds(
    tree.Constant, st.none() | st.booleans() | integers | doubles | st.sampled_from(TEXTS) | st.text(max_size=4)
)
named: st.SearchStrategy[tree.Property] = st.builds(tree.UserProperty, st.sampled_from(NAMES)) | st.builds(
    tree.SystemProperty, st.sampled_from(SYSTEM_NAMES)
)
leaves: st.SearchStrategy[tree.Expression] = (
    constants | named | st.builds(tree.Parameter, st.sampled_from(sorted(PARAMETERS)))
)


def _is_known(leaf: tree.Expression) -> bool:
    """Return whether the parser reads this name: a constant one must not name an unknown system property."""
    scope, dot, name = str(leaf.value).partition(".") if isinstance(leaf, tree.Constant) else ("", "", "")
    return not dot or scope.lower() != "sys" or name in SYSTEM_NAMES


known_names = leaves.filter(_is_known)


def _larger(inner: st.SearchStrategy[tree.Expression]) -> st.SearchStrategy[tree.Expression]:
    return (
        st.builds(tree.Sign, st.sampled_from("+-"), inner)
        | st.builds(tree.Arithmetic, st.sampled_from("+-*/%"), inner, inner)
        | st.builds(tree.PropertyCall, known_names)
    )


expressions = st.recursive(leaves, _larger, max_leaves=6)
patterns = constants.filter(lambda c: isinstance(c.value, str)) | named
ESCAPE = tree.Constant("!")


def _is_readable(like: tree.Like) -> bool:
    """Return whether the parser reads the pattern: a constant one must not end in its escape character."""
    text = like.pattern.value if isinstance(like.pattern, tree.Constant) and like.escape == ESCAPE else None
    return not isinstance(text, str) or (len(text) - len(text.rstrip("!"))) % 2 == 0


likes = st.builds(tree.Like, leaves, patterns, st.none() | st.just(ESCAPE)).filter(_is_readable)

tests: st.SearchStrategy[tree.Predicate] = (
    st.builds(tree.Comparison, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), expressions, expressions)
    | st.builds(tree.IsNull, named | st.builds(tree.PropertyCall, known_names))
    | st.builds(tree.Exists, named)
    | st.builds(tree.In, expressions, st.lists(leaves, min_size=1, max_size=4).map(tuple))
    | likes
)


def _combined(inner: st.SearchStrategy[tree.Predicate]) -> st.SearchStrategy[tree.Predicate]:
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.builds(tree.Not, inner) | st.builds(tree.And, several) | st.builds(tree.Or, several)


predicates = st.recursive(tests, _combined, max_leaves=5)
statements = st.lists(
    st.builds(tree.Set, st.builds(tree.UserProperty, st.sampled_from(NAMES)), expressions)
    | st.builds(tree.Remove, st.builds(tree.UserProperty, st.sampled_from(NAMES)))
    | st.builds(tree.Set, st.builds(tree.SystemProperty, st.sampled_from(["Label", "MessageId"])), expressions),
    min_size=1,
    max_size=3,
).map(tuple)

values = (
    st.none()
    | st.sampled_from(TEXTS)
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([2**63 - 1, -(2**63), 2**64 - 1, 2**53 + 1, 10**400])
    | st.floats(-4, 4, width=16)
    | st.sampled_from([float("nan"), float("inf"), -0.0])
    | st.sampled_from([Decimal("1.5"), Decimal(0), Decimal("-2"), Decimal("1E+40"), Decimal("NaN"), Decimal("sNaN")])
    | st.binary(max_size=2)
    | st.just(uuid.UUID(int=7))
    | st.builds(Instant, st.integers(0, 9))
    | st.builds(Duration, st.integers(-3, 3))
)


def messages(of: st.SearchStrategy[object] = values) -> st.SearchStrategy[MessageProperties]:
    return st.builds(
        MessageProperties,
        st.dictionaries(st.sampled_from(SYSTEM_NAMES), of, max_size=6),
        st.dictionaries(st.sampled_from(NAMES), of, max_size=6),
    )


def text_of(node: object) -> str:
    """Return the text of a predicate, an expression or a statement, with every part in parentheses."""
    match node:
        case tree.Constant(None):
            return "NULL"
        case tree.Constant(bool() as value):
            return str(value).upper()
        case tree.Constant(str() as value):
            return "'" + value.replace("'", "''") + "'"
        case tree.Constant(value):
            return repr(value)
        case tree.Parameter(name):
            return f"@{name}"
        case tree.UserProperty(name):
            return name_text(name)
        case tree.SystemProperty(name):
            return f"sys.{name}"
        case tree.PropertyCall(name):
            return f"property({text_of(name)})"
        case tree.NewId():
            return "newid()"
        case tree.Sign(symbol, operand):
            return f"{symbol}({text_of(operand)})"
        case tree.Arithmetic(symbol, left, right) | tree.Comparison(symbol, left, right):
            return f"({text_of(left)}) {symbol} ({text_of(right)})"
        case tree.IsNull(operand):
            return f"{text_of(operand)} IS NULL"
        case tree.Exists(name):
            return f"EXISTS({text_of(name)})"
        case tree.In(operand, members):
            return f"({text_of(operand)}) IN ({', '.join(map(text_of, members))})"
        case tree.Like(operand, pattern, escape):
            tail = "" if escape is None else f" ESCAPE {text_of(escape)}"
            return f"{text_of(operand)} LIKE {text_of(pattern)}{tail}"
        case tree.Not(operand):
            return f"NOT ({text_of(operand)})"
        case tree.And(operands):
            return " AND ".join(f"({text_of(operand)})" for operand in operands)
        case tree.Or(operands):
            return " OR ".join(f"({text_of(operand)})" for operand in operands)
        case tree.Set(name, value):
            return f"SET {text_of(name)} = {text_of(value)}"
        case tree.Remove(name):
            return f"REMOVE {text_of(name)}"
    raise TypeError(node)


def name_text(name: str) -> str:
    plain = name.isalpha() and name.upper() not in KEYWORDS
    return name if plain else "[" + name.replace("]", "]]") + "]"
