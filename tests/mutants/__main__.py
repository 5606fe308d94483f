"""Plants random one-line faults and shows which of them no test notices: `make mutate`.

    python -m tests.mutants --faults 100 --seed 1 detection store      # 100 faults in these areas
    python -m tests.mutants detection/decision.py:84                   # all faults of a line, of a file, or one alone

One warm process has loaded what is slow to load. For each fault it forks; the child imports the product with the fault
in it and runs the tests of the area until one fails. Tools that exist (mutmut, cosmic-ray) draw no sample, and either
start a process for each fault or leave out what a function's caller sees at import.
"""

from __future__ import annotations

import argparse
import ast
import importlib.machinery
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from tests.mutants.faults import Fault, read

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "oncebus"
_PATIENCE = 2.0
_MOST_SECONDS = 900.0
"""A fault may make everybody wait for ever. One that uses too much CPU is noticed sooner."""

_HEAVY = ("hypothesis", "numpy", "pyarrow", "pyarrow.compute", "pyspark.sql", "obstore.store", "greenlet")


class Area(NamedTuple):
    """Modules, and the tests that should notice a fault in them: the next ones run only if the first notice nothing."""

    modules: tuple[str, ...]
    tests: tuple[tuple[str, ...], ...]


_LIVES = ("tests/simulation/test_simulation.py",)
AREAS: dict[str, Area] = {
    "detection": Area(
        ("detection",),
        (("tests/detection/test_judge.py", "tests/detection", "tests/ledger/test_policies.py"), ("tests/ledger",)),
    ),
    "ledger": Area(("ledger",), (("tests/ledger",), ("tests/simulation/test_ledgers.py", "tests/pipeline"))),
    "inbox": Area(("engine/inbox",), (("tests/engine/inbox",), ("tests/broker", "tests/pipeline"), _LIVES)),
    "outbox": Area(("engine/outbox",), (("tests/engine/outbox",), ("tests/broker", "tests/pipeline"), _LIVES)),
    "store": Area(("engine/store",), (("tests/engine/store",), ("tests/broker",), _LIVES)),
    "entrance": Area(("broker/entrance.py",), (("tests/broker",), _LIVES)),
}


Planted = tuple[ast.Module, Fault]


class Result(NamedTuple):
    """What became of a fault: where it was noticed (None: nowhere), and the CPU seconds that it took."""

    fault: Fault
    noticed_by: int | None
    seconds: float


def main() -> int:
    """Return 1 if fewer than 95 % of the faults are noticed."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})
    given = _arguments()
    for name in _HEAVY:
        __import__(name)
    import pytest

    chosen = given.what or list(AREAS)
    chance, results = Random(given.seed), list[Result]()
    known = {name: _faults_of(area) for name, area in AREAS.items()}
    all_faults = sum(len(known[name]) for name in chosen if name in known)
    for what in chosen:
        if what in known:
            most = len(known[what]) if given.faults is None else round(given.faults * len(known[what]) / all_faults)
            name, faults = what, chance.sample(known[what], min(most, len(known[what])))
        else:
            name, faults = _faults_at(what, known)
        for tree, fault in faults:
            result = _try(fault, tree, AREAS[name].tests[: given.stages], pytest.main)
            results.append(result)
            how = "SURVIVED" if result.noticed_by is None else f"noticed {result.noticed_by + 1}"
            if given.verbose or result.noticed_by is None:
                print(f"{how}  {result.seconds:5.1f} s  {fault}", flush=True)
    noticed = sum(each.noticed_by is not None for each in results)
    print(f"{noticed} of {len(results)} faults noticed ({noticed / len(results):.1%}), seed {given.seed}")
    return int(noticed < 0.95 * len(results))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("what", nargs="*", help=f"areas ({', '.join(AREAS)}), files, lines or single faults")
    parser.add_argument("--faults", type=int, help="how many, drawn from all areas alike; else all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stages", type=int, help="run so many of the area's lists of tests; else all")
    parser.add_argument("--verbose", action="store_true", help="print the faults that are noticed too")
    return parser.parse_args()


def _faults_of(area: Area) -> list[Planted]:
    found = []
    for each in area.modules:
        path = SOURCE / each
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            tree, faults = read(file, str(file.relative_to(SOURCE)))
            found += [(tree, fault) for fault in faults]
    return found


def _faults_at(what: str, known: dict[str, list[Planted]]) -> tuple[str, list[Planted]]:
    """Return the area and the faults of a file, of a line, or the one of that place."""
    for name, faults in known.items():
        found = [each for each in faults if f"{each[1].place}.".startswith((f"{what}.", f"{what}:"))]
        if found:
            return name, found
    raise SystemExit(
        f"'{what}' is neither an area ({', '.join(AREAS)}) nor a file or line of one that can get a fault."
    )


def _try(
    fault: Fault,
    tree: ast.Module,
    stages: Sequence[tuple[str, ...]],
    pytest_main: Callable[..., Any],
) -> Result:
    file = SOURCE / fault.place.rpartition(":")[0]

    def run(tests: tuple[str, ...]) -> bool:
        fault.plant()
        _import_instead(file, tree)
        return _run(tests, pytest_main)

    spent = 0.0
    for stage, tests in enumerate(stages):
        is_green, seconds = _fork(partial(run, tests), _limit(tests, pytest_main))
        spent += seconds
        if not is_green:
            return Result(fault, stage, spent)
    return Result(fault, None, spent)


@cache
def _limit(tests: tuple[str, ...], pytest_main: Callable[..., Any]) -> float:
    """Return how many CPU seconds tests may take. Raises if they fail without a fault."""
    is_green, seconds = _fork(partial(_run, tests, pytest_main), 3600)
    if not is_green:
        raise SystemExit(f"{' '.join(tests)} fail without any fault.")
    return _PATIENCE * seconds


def _import_instead(file: Path, tree: ast.Module) -> None:
    """Let the import of a file give this tree."""
    loader: Any = importlib.machinery.SourceFileLoader
    usual = loader.get_code

    def get_code(self: Any, name: str) -> Any:
        return compile(tree, file, "exec") if self.path == str(file) else usual(self, name)

    loader.get_code = get_code


def _run(tests: tuple[str, ...], pytest_main: Callable[..., Any]) -> bool:
    """Run tests in this process until one fails. Return whether all passed."""
    words = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow and not torture"]
    # Hypothesis is there already.
    words += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    return bool(pytest_main([*words, *tests], plugins=[_NoShrinking()]) == 0)


class _NoShrinking:
    """Let hypothesis stop at the first example that fails."""

    def pytest_collection(self) -> None:
        """Called once the options are read, before tests are imported."""
        from hypothesis import Phase, settings

        settings.register_profile("mutants", settings(), phases=(Phase.explicit, Phase.generate))
        settings.load_profile("mutants")


def _fork(work: Callable[[], bool], limit: float) -> tuple[bool, float]:
    """Do work in a child. Return what it returns, False if it takes more than `limit`, and its CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    child = os.fork()
    if not child:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (round(limit) + 1, -1))
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        try:
            os._exit(0 if work() else 1)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    deadline = time.monotonic() + _MOST_SECONDS
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done or time.monotonic() > deadline:
            break
        time.sleep(0.02)
    if not done:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return bool(done) and os.waitstatus_to_exitcode(status) == 0, seconds


if __name__ == "__main__":
    sys.exit(main())
