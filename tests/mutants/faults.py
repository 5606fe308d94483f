"""Random one-line faults in Python source: a boundary moved, a condition turned, a statement left out."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_LEFT_OUT = (ast.Expr, ast.Assign, ast.AugAssign, ast.Delete, ast.Raise, ast.Continue, ast.Break)
_UNTOUCHED = (ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal, ast.Assert)


@dataclass(frozen=True, slots=True)
class Fault:
    """Replaces one node of a tree: `parent.field`, or `parent.field[at]`. `place` names it in each run alike."""

    place: str
    parent: ast.AST
    field: str
    at: int | None
    new: ast.AST

    @property
    def old(self) -> ast.AST:
        """Return the node that is replaced."""
        value = getattr(self.parent, self.field)
        found: ast.AST = value if self.at is None else value[self.at]
        return found

    def plant(self) -> None:
        """Change the tree."""
        if self.at is None:
            setattr(self.parent, self.field, self.new)
        else:
            getattr(self.parent, self.field)[self.at] = self.new

    def __str__(self) -> str:
        old, new = (" ".join(ast.unparse(each).split())[:100] for each in (self.old, self.new))
        return f"{self.place}  {old}  →  {new}"


def faults_in(tree: ast.Module, name: str) -> list[Fault]:
    """Return every fault that a module can get, in the order of its text."""
    found: list[Fault] = []
    numbers: dict[int, int] = {}
    for parent, field, at, old in _nodes(tree):
        line = getattr(old, "lineno", 0)
        for new in _replacements(old):
            numbers[line] = numbers.get(line, 0) + 1
            ast.fix_missing_locations(ast.copy_location(new, old))
            found.append(Fault(f"{name}:{line}.{numbers[line]}", parent, field, at, new))
    return found


def read(file: Path, name: str) -> tuple[ast.Module, list[Fault]]:
    """Return the tree of a module, and all its faults."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return tree, faults_in(tree, name)


def _nodes(node: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, ast.AST]]:
    """Yield what can be replaced, with its place. Annotations, decorators, texts of errors and imports stay."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "bases", "type_params"):
            continue
        if isinstance(node, ast.Raise) and field in ("exc", "cause"):
            continue
        for at, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(child, ast.AST) or isinstance(child, _UNTOUCHED) or _only_says(node, child):
                continue
            yield node, field, at, child
            yield from _nodes(child)


def _only_says(node: ast.AST, child: ast.AST) -> bool:
    """Return whether a node is a docstring, the type of a name, or a block that only the type checker reads."""
    if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
        return True
    if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
        return True
    # Names of types: `Keys = npt.NDArray[np.uint64]`, `__all__`.
    if isinstance(node, ast.Module) and isinstance(child, ast.Assign):
        name = ast.unparse(child.targets[0])
        is_type = isinstance(child.value, ast.Subscript | ast.BinOp) and name[:1].isupper() and not name.isupper()
        return is_type or name == "__all__"
    return False


def _replacements(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(left, [operator], [right]):
            yield ast.Compare(left, [_COMPARISONS[type(operator)]()], [right])
        case ast.BinOp(left, operator, right) if type(operator) in _OPERATORS:
            yield ast.BinOp(left, _OPERATORS[type(operator)](), right)
        case ast.BoolOp(operator, values):
            yield ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
        case ast.UnaryOp(_, operand):
            yield operand
        case ast.Constant(bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(int(value)):
            yield ast.Constant(value + 1)
            if value > 0:
                yield ast.Constant(value - 1)
        case ast.If() | ast.While():
            pass
        case ast.IfExp(_, body, other):
            yield body
            yield other
    if isinstance(node, ast.If):
        yield ast.If(ast.Constant(True), node.body, node.orelse)
        yield ast.If(ast.Constant(False), node.body, node.orelse)
    elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield ast.Return(ast.Constant(None))
    elif isinstance(node, _LEFT_OUT):
        yield ast.Pass()


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
