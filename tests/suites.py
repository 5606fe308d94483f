"""Finds out which tests are slow from the modules they use, so that nobody has to remember to mark them.

A test is slow if its module, a test module that this one imports, or the module of one of its fixtures can start
another process: Spark, a browser, one of our commands, an official client in another language. Mark a test by hand if
it starts a process through our own code. `make test-fast` skips the slow tests. To make sure that none is missed,
`forbid_processes` fails a test that starts a process but is not slow.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent
_STARTERS = {"multiprocessing", "playwright", "pty", "subprocess"}
_STARTING_NAMES = {"SparkSession", "create_subprocess_exec", "create_subprocess_shell", "fork", "posix_spawn"}
_STARTING_EVENTS = {"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen"}
_SHARED = TESTS / "conftest.py"
"""Every test uses this module, but few use the fixtures that start something. So its fixtures count by name."""
_STARTING_FIXTURES = {"cluster", "object_servers", "postgres", "spark"}


def is_slow(path: Path, fixtures: dict[str, Path]) -> bool:
    """Return whether a test in a module can start another process. `fixtures` maps its fixtures to their modules."""
    if not _STARTING_FIXTURES.isdisjoint(fixtures):
        return True
    return any(_starts(each) for each in {path, *fixtures.values()} if each != _SHARED)


@cache
def _starts(path: Path) -> bool:
    seen: set[Path] = set()
    ahead = [path]
    while ahead:
        module = ahead.pop()
        if module in seen or module == _SHARED:
            continue
        seen.add(module)
        starts_itself, uses = _read(module)
        if starts_itself:
            return True
        ahead += uses
    return False


@cache
def _read(module: Path) -> tuple[bool, list[Path]]:
    """Return whether a module itself can start a process, and the test modules that it imports."""
    nodes = list(ast.walk(ast.parse(module.read_text(encoding="utf-8"))))
    imported = set(_imports(nodes, module))
    starts = _STARTERS & {name.partition(".")[0] for name in imported} or _STARTING_NAMES & set(_names(nodes))
    return bool(starts), [found for name in imported if (found := _file_of(name)) is not None]


def _imports(nodes: list[ast.AST], module: Path) -> Iterator[str]:
    """Yield the names of all imported modules, anywhere in the file; `from a import b` yields `a.b` too."""
    package = module.relative_to(TESTS.parent).parent.parts if module.is_relative_to(TESTS) else ()
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}".lstrip(".") for alias in node.names)


def _names(nodes: list[ast.AST]) -> Iterator[str]:
    """Yield the names that code calls. Annotations do not count: a test that only receives a session names it there."""
    for node in nodes:
        if isinstance(node, ast.Call):
            yield from (each.id for each in ast.walk(node.func) if isinstance(each, ast.Name))
            yield from (each.attr for each in ast.walk(node.func) if isinstance(each, ast.Attribute))


def _file_of(name: str) -> Path | None:
    """Return the file of a test module; None for any other module."""
    if not name.startswith("tests."):
        return None
    place = TESTS.parent.joinpath(*name.split("."))
    return next((file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()), None)


_forbidden_to: list[str] = []


def _watch(event: str, arguments: tuple[object, ...]) -> None:
    if _forbidden_to and event in _STARTING_EVENTS:
        started = next((str(each) for each in arguments if each is not None), event)
        raise AssertionError(
            f"{_forbidden_to[-1]} starts a process ({started}), but tests/suites.py does not see it. Mark it slow."
        )


@contextmanager
def forbid_processes(test: str) -> Iterator[None]:
    """Fail the test if it starts a process in the block."""
    if not _is_watched:
        sys.addaudithook(_watch)
        _is_watched.append(True)
    _forbidden_to.append(test)
    try:
        yield
    finally:
        _forbidden_to.pop()


_is_watched: list[bool] = []
