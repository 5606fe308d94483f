"""Parses the text of a rule into a tree, by recursive descent over Microsoft's documented grammar.

Operators from the weakest binding to the strongest: OR, AND, NOT, one comparison or test, + and -, * / and %, a sign. A
parenthesis may hold a predicate or an expression; the code that uses it checks which of the two it is.

The text is untrusted. Its length, number of terms and depth are limited. The depth limit keeps recursion safe, here and
in evaluation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeGuard, TypeVar, cast, get_args

from oncebus.model.filters import tree
from oncebus.model.filters.errors import BadRule, unreadable
from oncebus.model.filters.lexer import Token, TokenKind, tokens_of
from oncebus.model.filters.like import BadPattern, matcher
from oncebus.model.filters.operators import COMPARISONS
from oncebus.model.filters.properties import SETTABLE, system_name
from oncebus.values.sizes import utf16_length

LONGEST_TEXT = 1024
"""The maximum length of a filter or action, in UTF-16 units, as .NET counts."""
MOST_TERMS = 256
DEEPEST = 32
MOST_STATEMENTS = 32

Node = tree.Expression | tree.Predicate
_Made = TypeVar("_Made", bound=Node)
_PREDICATES = get_args(tree.Predicate)


def _is_predicate(node: Node) -> TypeGuard[tree.Predicate]:
    return isinstance(node, _PREDICATES)


def filter_tree(text: str) -> tree.Predicate:
    """Parse the text of a filter. Raises `BadRule`."""
    parser = _Parser(text, "filter")
    start = parser.token
    found = parser.predicate(parser.disjunction(), start)
    parser.expect_end("AND, OR or the end")
    return found


def action_tree(text: str) -> tuple[tree.Statement, ...]:
    """Parse the text of an action into at least one statement. Raises `BadRule`."""
    parser = _Parser(text, "action")
    statements = [parser.statement()]
    while not parser.is_at_end():
        if parser.skip_separator() and parser.is_at_end():
            break
        if len(statements) == MOST_STATEMENTS:
            raise parser.bad(parser.token, f"found {parser.token} after {MOST_STATEMENTS} statements, the most allowed")
        statements.append(parser.statement())
    return tuple(statements)


class _Parser:
    def __init__(self, text: str, what: str) -> None:
        self._what = what
        self._check_text(text)
        self._tokens = tokens_of(text, what)
        self._at = 0
        self._terms = 0
        self._new_ids = 0
        self._nesting = 0
        # Keyed by identity because equal nodes occur at different depths. The value holds the node itself, so that it
        # is not freed and its id() is not reused.
        self._depths: dict[int, tuple[Node, int]] = {}

    def _check_text(self, text: str) -> None:
        if not isinstance(text, str):
            raise BadRule(f"The {self._what} must be a text, not {type(text).__name__}.")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            position = error.start + 1
            problem = f"{text[error.start]!r} at position {position}, which is half of a surrogate pair"
            raise BadRule(f"The {self._what} has {problem}.", position) from None
        if (size := utf16_length(text)) > LONGEST_TEXT:
            raise BadRule(
                f"The {self._what} has {size} characters; at most {LONGEST_TEXT} are allowed.", LONGEST_TEXT + 1
            )

    @property
    def token(self) -> Token:
        return self._tokens[self._at]

    def advance(self) -> Token:
        token = self.token
        self._at += 1
        return token

    def bad(self, token: Token, problem: str) -> BadRule:
        return unreadable(self._what, token.position, problem)

    def is_at_end(self) -> bool:
        return self.token.kind is TokenKind.END

    def expect_end(self, wanted: str) -> None:
        if not self.is_at_end():
            raise self._error_expecting(wanted)

    def _error_expecting(self, wanted: str) -> BadRule:
        return self.bad(self.token, f"found {self.token} where {wanted} was expected")

    def _is(self, kind: TokenKind, *texts: str) -> bool:
        return self.token.kind is kind and self.token.text in texts

    def _take(self, kind: TokenKind, text: str) -> bool:
        if self._is(kind, text):
            self._at += 1
            return True
        return False

    def _expect(self, kind: TokenKind, text: str) -> None:
        if not self._take(kind, text):
            raise self._error_expecting(f"'{text}'")

    def _with_depth(self, node: _Made, token: Token, *parts: Node) -> _Made:
        depth = 1 + max((self._depths[id(part)][1] for part in parts), default=0)
        if depth > DEEPEST:
            raise self.bad(token, f"{token} is nested more than {DEEPEST} levels deep")
        self._depths[id(node)] = (node, depth)
        return node

    def _term(self, node: _Made, token: Token, *parts: Node) -> _Made:
        self._terms += 1
        if self._terms > MOST_TERMS:
            raise self.bad(token, f"{token} is term {self._terms}; at most {MOST_TERMS} are allowed")
        return self._with_depth(node, token, *parts)

    def _descend(self, token: Token, parse: Callable[[], _Made]) -> _Made:
        self._nesting += 1
        if self._nesting > DEEPEST:
            raise self.bad(token, f"{token} is nested more than {DEEPEST} levels deep")
        node = parse()
        self._nesting -= 1
        return node

    # Predicates

    def predicate(self, node: Node, start: Token) -> tree.Predicate:
        """Return the node if it is a predicate, or raise `BadRule`. `start` is the node's first token."""
        if _is_predicate(node):
            return node
        raise self.bad(start, f"{start} begins a value that is not compared to anything; found {self.token} after it")

    def _expression(self, node: Node, start: Token) -> tree.Expression:
        if not _is_predicate(node):
            return cast(tree.Expression, node)
        raise self.bad(start, f"{start} begins a condition where a value was expected")

    def disjunction(self) -> Node:
        return self._chain("OR", self._conjunction, tree.Or)

    def _conjunction(self) -> Node:
        return self._chain("AND", self._negation, tree.And)

    def _chain(self, word: str, operand: Callable[[], Node], kind: type[tree.And] | type[tree.Or]) -> Node:
        start = self.token
        first = operand()
        if not self._is(TokenKind.KEYWORD, word):
            return first
        operands = [self.predicate(first, start)]
        token = self.token
        while self._take(TokenKind.KEYWORD, word):
            start = self.token
            operands.append(self.predicate(operand(), start))
        return self._with_depth(kind(tuple(operands)), token, *operands)

    def _negation(self) -> Node:
        token = self.token
        if not self._take(TokenKind.KEYWORD, "NOT"):
            return self._test()
        start = self.token
        operand = self.predicate(self._descend(token, self._negation), start)
        return self._with_depth(tree.Not(operand), token, operand)

    def _test(self) -> Node:
        start = self.token
        if self._take(TokenKind.KEYWORD, "EXISTS"):
            self._expect(TokenKind.SYMBOL, "(")
            named = self._property()
            self._expect(TokenKind.SYMBOL, ")")
            return self._with_depth(tree.Exists(named), start, named)
        left = self._sum()
        token = self.token
        if token.kind is TokenKind.SYMBOL and token.text in COMPARISONS:
            self.advance()
            left, right = self._expression(left, start), self._value()
            return self._with_depth(tree.Comparison(token.text, left, right), token, left, right)
        if self._take(TokenKind.KEYWORD, "IS"):
            negative = self._take(TokenKind.KEYWORD, "NOT")
            self._expect(TokenKind.KEYWORD, "NULL")
            if not isinstance(left, tree.SystemProperty | tree.UserProperty | tree.PropertyCall):
                raise self.bad(start, f"IS NULL takes a property, but {start} begins something else")
            return self._negate_if(self._with_depth(tree.IsNull(left), token, left), token, negative)
        negative = self._take(TokenKind.KEYWORD, "NOT")
        if self._take(TokenKind.KEYWORD, "IN"):
            left = self._expression(left, start)
            members = self._members()
            return self._negate_if(self._with_depth(tree.In(left, members), token, left, *members), token, negative)
        if self._take(TokenKind.KEYWORD, "LIKE"):
            after = self.token
            left, pattern = self._expression(left, start), self._value()
            escape = self._value() if self._take(TokenKind.KEYWORD, "ESCAPE") else None
            self._check_pattern(pattern, escape, after)
            parts = (left, pattern) if escape is None else (left, pattern, escape)
            return self._negate_if(self._with_depth(tree.Like(left, pattern, escape), token, *parts), token, negative)
        if negative:
            raise self._error_expecting("IN or LIKE")
        return left

    def _check_pattern(self, pattern: tree.Expression, escape: tree.Expression | None, start: Token) -> None:
        if not isinstance(pattern, tree.Constant) or not isinstance(escape, tree.Constant | None):
            return
        mark = None if escape is None else escape.value
        if isinstance(pattern.value, str) and isinstance(mark, str | None):
            try:
                matcher(pattern.value, mark)
            except BadPattern as error:
                raise self.bad(start, str(error)) from None

    def _negate_if(self, test: tree.Predicate, token: Token, negative: bool) -> tree.Predicate:
        return self._with_depth(tree.Not(test), token, test) if negative else test

    def _members(self) -> tuple[tree.Expression, ...]:
        self._expect(TokenKind.SYMBOL, "(")
        members = [self._value()]
        while self._take(TokenKind.SYMBOL, ","):
            members.append(self._value())
        if not self._take(TokenKind.SYMBOL, ")"):
            raise self._error_expecting("',' or ')'")
        return tuple(members)

    # Expressions

    def _value(self) -> tree.Expression:
        start = self.token
        return self._expression(self._sum(), start)

    def _sum(self) -> Node:
        return self._calculation(("+", "-"), self._product)

    def _product(self) -> Node:
        return self._calculation(("*", "/", "%"), self._sign)

    def _calculation(self, symbols: tuple[str, ...], operand: Callable[[], Node]) -> Node:
        start = self.token
        left = operand()
        while self._is(TokenKind.SYMBOL, *symbols):
            token = self.advance()
            after = self.token
            left, right = self._expression(left, start), self._expression(operand(), after)
            left = self._with_depth(tree.Arithmetic(token.text, left, right), token, left, right)
        return left

    def _sign(self) -> Node:
        token = self.token
        if not self._is(TokenKind.SYMBOL, "+", "-"):
            return self._primary()
        self.advance()
        start = self.token
        operand = self._expression(self._descend(token, self._sign), start)
        return self._with_depth(tree.Sign(token.text, operand), token, operand)

    def _primary(self) -> Node:
        token = self.token
        if token.kind is TokenKind.NUMBER:
            self.advance()
            return self._term(tree.Constant(token.number), token)
        if token.kind is TokenKind.STRING:
            self.advance()
            return self._term(tree.Constant(token.text), token)
        if token.kind is TokenKind.PARAMETER:
            self.advance()
            return self._term(tree.Parameter(token.text.lower()), token)
        if self._is(TokenKind.KEYWORD, "TRUE", "FALSE"):
            self.advance()
            return self._term(tree.Constant(token.text == "TRUE"), token)
        if self._take(TokenKind.KEYWORD, "NULL"):
            return self._term(tree.Constant(None), token)
        if self._take(TokenKind.SYMBOL, "("):
            inner = self._descend(token, self.disjunction)
            self._expect(TokenKind.SYMBOL, ")")
            return inner
        if token.kind is TokenKind.WORD and self._opens(self._tokens[self._at + 1]):
            return self._call()
        if token.kind in (TokenKind.WORD, TokenKind.NAME):
            return self._property()
        if token.kind is TokenKind.KEYWORD:
            raise self.bad(token, f"{token} is a reserved word; write a property of that name as [{token.source}]")
        raise self._error_expecting("a value")

    @staticmethod
    def _opens(token: Token) -> bool:
        return token.kind is TokenKind.SYMBOL and token.text == "("

    def _call(self) -> tree.Expression:
        token = self.advance()
        self._expect(TokenKind.SYMBOL, "(")
        function = token.text.lower()
        if function == "newid":
            self._expect(TokenKind.SYMBOL, ")")
            self._new_ids += 1
            return self._term(tree.NewId(self._new_ids), token)
        if function in ("property", "p"):
            argument = self.token
            name = self._descend(token, self._value)
            self._expect(TokenKind.SYMBOL, ")")
            if isinstance(name, tree.Constant) and isinstance(name.value, str):
                self._check_name(name.value, argument)
            return self._term(tree.PropertyCall(name), token, name)
        raise self.bad(token, f"there is no function {token}; the functions are newid, property and p")

    def _check_name(self, name: str, token: Token) -> None:
        scope, dot, rest = name.partition(".")
        if dot and scope.lower() == "sys" and system_name(rest) is None:
            raise self.bad(token, f"there is no system property {rest!r}")

    def _property(self) -> tree.Property:
        token = self.token
        if token.kind not in (TokenKind.WORD, TokenKind.NAME):
            raise self._error_expecting("a property")
        self.advance()
        if not self._take(TokenKind.SYMBOL, "."):
            return self._term(tree.UserProperty(token.text), token)
        name = self.token
        if name.kind not in (TokenKind.WORD, TokenKind.NAME):
            raise self._error_expecting("the name of a property")
        self.advance()
        scope = token.text.lower()
        if scope == "user":
            return self._term(tree.UserProperty(name.text), token)
        if scope != "sys":
            raise self.bad(token, f"there is no scope {token}; the scopes are sys and user")
        known = system_name(name.text)
        if known is None:
            raise self.bad(name, f"there is no system property {name}")
        return self._term(tree.SystemProperty(known), token)

    # Statements

    def skip_separator(self) -> bool:
        """Skip the separator after a statement.

        Return whether it was a semicolon, which may also end the last statement.
        """
        if self._take(TokenKind.SYMBOL, ";"):
            return True
        self._take(TokenKind.SYMBOL, ",")
        return False

    def statement(self) -> tree.Statement:
        token = self.token
        if self._take(TokenKind.KEYWORD, "SET"):
            target = self._target()
            self._expect(TokenKind.SYMBOL, "=")
            return tree.Set(target, self._value())
        if self._take(TokenKind.KEYWORD, "REMOVE"):
            name = self.token
            target = self._target()
            if target == tree.SystemProperty("MessageId"):
                raise self.bad(name, "the MessageId of a message cannot be removed")
            return tree.Remove(target)
        raise self.bad(token, f"found {token} where SET or REMOVE was expected")

    def _target(self) -> tree.Property:
        token = self.token
        target = self._property()
        if isinstance(target, tree.SystemProperty) and target.name not in SETTABLE:
            raise self.bad(token, f"the system property {target.name} cannot be changed")
        return target
