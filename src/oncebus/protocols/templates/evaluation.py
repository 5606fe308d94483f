"""Evaluates the expressions of a template. An expression can call only functions that this package declares.

Parameters and variables are evaluated on first use, each once. An error is recorded with its location. Values that
depend on the failed one do not report it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from oncebus.protocols.management.documents import Object, is_object, kind_of, written_name
from oncebus.protocols.management.problems import AlreadyReported, Fault, Problems, hint, item, member, nearest
from oncebus.protocols.templates.expressions import (
    Call,
    Literal,
    MemberAccess,
    Node,
    is_expression,
    parse_expression,
    unescape,
)
from oncebus.protocols.templates.functions import FUNCTIONS, Function, Misuse, check_kind
from oncebus.protocols.templates.scope import Context, Deployment, Loops, StepBudget, Value

MOST_COPIES = 800
"""The maximum number of copies in one loop. It is the Resource Manager's limit."""

_STEPS_OF_A_COPY = 20
_AT_RUN_TIME = {"reference", "listkeys", "list", "listsecrets", "providers", "references", "tenant", "environment"}
_LAMBDAS = {"map", "filter", "reduce", "sort", "groupby", "toobject", "lambda", "lambdavariables"}

Resolve = Callable[[str], Value]


class _Loop(NamedTuple):
    """A variable that a copy loop creates, and the location of the loop."""

    loop: Object
    path: str


class _Broken:
    """Stands for a value that could not be evaluated."""

    def __repr__(self) -> str:
        return "…"


BROKEN: Final = _Broken()


def is_whole(value: Value) -> bool:
    """Return whether a value and everything in it could be evaluated.

    A part that occurs several times is visited once, because references can make a value exponentially large.
    """
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if each is BROKEN:
            return False
        if isinstance(each, list | dict) and id(each) not in seen:
            seen.add(id(each))
            waiting.extend(each.values() if isinstance(each, dict) else each)
    return True


class Evaluator:
    """Evaluates the values of one template. `parameter` returns a parameter's value, or raises `Fault`.

    Everything is charged to one budget, including references: a variable that refers to another one twice pays for it
    twice, although it takes no more memory. Once the budget is spent, nothing more is evaluated.
    """

    def __init__(
        self,
        variables: Object,
        parameter: Resolve,
        deployment: Deployment,
        problems: Problems,
        budget: StepBudget | None = None,
        at_run_time: Iterable[Function] = (),
    ) -> None:
        self.loops = Loops()
        self.problems = problems
        self._deployment = deployment
        self._parameter = parameter
        self._variables = Lazy("variable", _with_loops(variables), self._variable)
        self._budget = budget or StepBudget()
        self._parsed: dict[str, Node] = {}
        lazy = (
            Function("if", "bool any any", self._if),
            Function("and", "bool bool+", lambda *flags: all(self._flag(each, at) for at, each in enumerate(flags))),
            Function("or", "bool bool+", lambda *flags: any(self._flag(each, at) for at, each in enumerate(flags))),
            Function("coalesce", "any+", self._coalesce),
            Function("parameters", "string", lambda name: self._parameter(self._name(name))),
            Function("variables", "string", lambda name: self._variables.get(self._name(name))),
            Function("tryGet", "any any+", self._try_get),
        )
        self._lazy = {function.name.lower(): function for function in lazy}
        """Functions that get the trees of their arguments, because they do not evaluate all of them."""
        self._at_run_time = {function.name.lower(): function for function in at_run_time}
        """Functions that read the deployed resources. Only outputs may call them."""

    # Values as the template writes them

    def value(self, written: Value, path: str) -> Value:
        """Return a value with all its expressions evaluated.

        Records each error, and returns `BROKEN` for the part that failed.
        """
        if not self._can_afford(1 + len(written) // 8 if isinstance(written, str) else 1, path):
            return BROKEN
        if isinstance(written, str):
            return self._text(written, path)
        if isinstance(written, list):
            return [self.value(each, item(path, at)) for at, each in enumerate(written)]
        return self._object(written, path) if is_object(written) else written

    def require_value(self, written: Value, path: str) -> Value:
        """Return the evaluated value. Raises `AlreadyReported` if a part of it failed."""
        value = self.value(written, path)
        if not is_whole(value):
            raise AlreadyReported
        return value

    def check_variables(self) -> None:
        """Evaluate every variable, so that errors in unused ones are reported too."""
        for name in self._variables.names:
            try:
                self._variables.get(name)
            except AlreadyReported:
                continue
            except Fault as error:
                self.problems.add(member("variables", name), str(error))

    def _text(self, written: str, path: str) -> Value:
        if not is_expression(written):
            return unescape(written)
        try:
            made = self._evaluate(self._tree(written))
            self._budget.spend(made)
            return made
        except AlreadyReported:
            return BROKEN
        except Fault as error:
            self.problems.add(path, str(error))
        except RecursionError:
            self.problems.add(path, "The expression refers to parameters and variables through too many levels.")
        return BROKEN

    def _tree(self, written: str) -> Node:
        """Return the tree of an expression. It is cached, because a loop evaluates the same text many times."""
        if written not in self._parsed:
            self._parsed[written] = parse_expression(written)
        return self._parsed[written]

    def _can_afford(self, steps: int, path: str) -> bool:
        try:
            self._budget.spend_steps(steps)
        except AlreadyReported:
            return False
        except Fault as error:
            self.problems.add(path, str(error))
            return False
        return True

    def _object(self, written: Object, path: str) -> Object:
        found: Object = {}
        for name, value in written.items():
            if name.lower() == "copy" and is_loops(value):
                for at, loop in enumerate(value):
                    self._copy_into(found, loop, item(member(path, name), at))
                continue
            key = self._text(name, member(path, name))
            if key is not BROKEN:
                found[key if isinstance(key, str) else name] = self.value(value, member(path, name))
        return found

    def _copy_into(self, into: Object, loop: Object, path: str) -> None:
        name = str(loop.get("name"))
        try:
            into[name] = self._inputs(loop, path)
        except AlreadyReported:
            into[name] = BROKEN

    def _inputs(self, loop: Object, path: str) -> list[Value]:
        return [self.value(loop.get("input"), member(path, "input")) for _ in self.copies(loop, path)]

    def copies(self, loop: Object, path: str) -> Iterator[int]:
        """Yield the indexes of a loop. Functions such as copyIndex() see the index that was yielded last.

        Raises `AlreadyReported`.
        """
        name = self.require_value(loop.get("name"), member(path, "name"))
        count = self.require_value(loop.get("count"), member(path, "count"))
        if not isinstance(name, str) or not name:
            self.problems.add(member(path, "name"), "A copy loop must have a name.")
            raise AlreadyReported
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MOST_COPIES:
            self.problems.add(member(path, "count"), f"A copy loop makes 0 to {MOST_COPIES} copies, not {count!r}.")
            raise AlreadyReported
        for index in range(count):
            if not self._can_afford(_STEPS_OF_A_COPY, path):
                raise AlreadyReported
            with self.loops.at(name, index):
                yield index

    def _variable(self, name: str, written: Value) -> Value:
        with self._outside_of_loops():
            if not isinstance(written, _Loop):
                return self.require_value(written, member("variables", name))
            values = self._inputs(written.loop, written.path)
            if not is_whole(values):
                raise AlreadyReported
            return values

    @contextmanager
    def _outside_of_loops(self) -> Iterator[None]:
        """Hide the current loops inside the block, because a variable has the same value wherever it is used."""
        loops, self.loops = self.loops, Loops()
        try:
            yield
        finally:
            self.loops = loops

    # Expressions

    def _evaluate(self, node: Node) -> Value:
        self._budget.spend_steps(1)
        match node:
            case Literal():
                return node.value
            case MemberAccess():
                return self._access(node)
            case Call():
                return self._call(node)

    def _call(self, call: Call) -> Value:
        name = call.name.lower()
        function = self._lazy.get(name) or FUNCTIONS.get(name) or self._at_run_time.get(name)
        if function is None:
            raise self._unknown(call.name)
        function.check_count(len(call.arguments))
        try:
            if name in self._lazy:
                return function.run(*call.arguments)
            values = [self._evaluate(each) for each in call.arguments]
            if not function.is_shallow:
                for value in values:
                    self._budget.spend(value)
            made = function.call(Context(self._deployment, self.loops), values)
        except Misuse as error:
            raise Fault(f"The function '{function.name}' {error}") from None
        self._budget.spend(made)
        return made

    def _unknown(self, name: str) -> Fault:
        if name.lower() in _AT_RUN_TIME or name.lower().startswith("list"):
            return Fault(
                f"The function '{name}' reads the deployed resources. "
                "Of such functions, only reference and listKeys are supported, and only in outputs."
            )
        if name.lower() in _LAMBDAS:
            return Fault(f"The function '{name}' takes functions as arguments; such functions are not supported.")
        known = FUNCTIONS | self._lazy
        near = nearest(name.lower(), known)
        return Fault(f"The function '{name}' is unknown.{hint(known[near].name if near else None)}")

    def _access(self, access: MemberAccess) -> Value:
        value = self._evaluate(access.of)
        for step in access.steps:
            value = self._enter(value, step if isinstance(step, str) else self._evaluate(step))
        return value

    def _enter(self, value: Value, key: Value) -> Value:
        if isinstance(value, dict) and isinstance(key, str) and key not in value:
            # The name may have another case, so the search visits all names.
            self._budget.spend_steps(len(value))
        return _part_of(value, key)

    def _if(self, condition: Node, one: Node, other: Node) -> Value:
        return self._evaluate(one if self._flag(condition, 0) else other)

    def _flag(self, argument: Node, at: int) -> bool:
        value = self._evaluate(argument)
        check_kind("bool", at, value)
        return bool(value)

    def _name(self, argument: Node) -> str:
        value = self._evaluate(argument)
        check_kind("string", 0, value)
        return str(value)

    def _coalesce(self, *arguments: Node) -> Value:
        return next((value for each in arguments if (value := self._evaluate(each)) is not None), None)

    def _try_get(self, argument: Node, *keys: Node) -> Value:
        value = self._evaluate(argument)
        for key in keys:
            try:
                value = self._enter(value, self._evaluate(key))
            except _NotThere:
                return None
        return value


class Lazy:
    """Values that are evaluated on first use, by name in any letter case. A circular reference raises `Fault`."""

    def __init__(self, noun: str, written: Object, evaluate: Callable[[str, Value], Value]) -> None:
        self._noun = noun
        self._written = written
        self._evaluate = evaluate
        self._known: dict[str, Value] = {}
        self._under_way: list[str] = []

    @property
    def names(self) -> list[str]:
        """Return all names, as the template spells them."""
        return list(self._written)

    def get(self, name: str) -> Value:
        """Return the value called `name`. Raises `Fault`, or `AlreadyReported` if its problem is already recorded."""
        written = written_name(self._written, name)
        if written is None:
            raise Fault(f"The {self._noun} '{name}' does not exist.{hint(nearest(name, self._written))}")
        if written not in self._known:
            self._known[written] = self._compute(written)
        if self._known[written] is BROKEN:
            raise AlreadyReported
        return self._known[written]

    def _compute(self, name: str) -> Value:
        if name in self._under_way:
            circle = [*self._under_way[self._under_way.index(name) :], name]
            raise Fault(f"The {self._noun} '{name}' depends on itself: {' → '.join(circle)}.")
        self._under_way.append(name)
        try:
            return self._evaluate(name, self._written[name])
        except AlreadyReported:
            return BROKEN
        finally:
            self._under_way.pop()


def is_loops(value: object) -> bool:
    """Return whether a value is a list of loops, each with a count.

    `value` is the content of a member called `copy`.
    """
    return isinstance(value, list) and bool(value) and all(is_object(each) and "count" in each for each in value)


class _NotThere(Fault):
    """An object lacks the requested member, or an array lacks the requested item."""


def _with_loops(variables: Object) -> Object:
    """Return the variables, with each loop replaced by the variable that it creates."""
    found: Object = {}
    for name, written in variables.items():
        if name.lower() == "copy" and is_loops(written):
            for at, loop in enumerate(written):
                found[str(loop.get("name"))] = _Loop(loop, item(member("variables", name), at))
        else:
            found[name] = written
    return found


def _part_of(value: Value, key: Value) -> Value:
    if isinstance(value, dict) and isinstance(key, str):
        name = written_name(value, key)
        if name is None:
            has = f"It has {', '.join(map(repr, list(value)[:10]))}." if value else "It is empty."
            raise _NotThere(f"The object has no member '{key}'. {has}")
        return value[name]
    if isinstance(value, list) and isinstance(key, int) and not isinstance(key, bool):
        if not 0 <= key < len(value):
            raise _NotThere(f"The array has {len(value)} items, and none at index {key}.")
        return value[key]
    raise _NotThere(f"A value of type {kind_of(value)} has nothing at {key!r}.")
