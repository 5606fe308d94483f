"""Notes when a message passes the stages of the broker. `bench.latency` puts this folder on the path of the processes.

Python imports a module of this name at its start, in the gateway and in Spark's Python workers alike. It wraps some
methods of the broker as their modules are imported. Each call appends lines to a file of its process in the folder
BENCH_TRACE: nanoseconds on the monotonic clock, which all processes share, and the name of the point.
"""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.machinery
import inspect
import os
import sys
import time
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

FOLDER = os.environ.get("BENCH_TRACE", "")

POINTS: dict[str, dict[str, tuple[str | None, str | None]]] = {
    "oncebus.broker.acceptor": {"Acceptor.append": ("appended", None), "Acceptor._append": ("write", "durable")},
    "oncebus.pipeline.source": {
        f"{stream}.{method}": points
        for stream in ("PipelineStream", "FollowingStream")
        for method, points in (
            ("latestOffset", ("asked", "seen")),
            ("partitions", ("plan", "planned")),
            ("read", ("task", None)),
        )
    },
    "oncebus.pipeline.batch": {"process_part": (None, "done"), "write_part": ("routed", "part")},
    "oncebus.ledger.ledger": {
        "Ledger.enter": ("enter", "entered"),
        "Ledger.decide": (None, "detected"),
        "Ledger.tidy": ("tidy", "tidied"),
    },
    "oncebus.ledger.local_storage": {"LocalStorage.publish": (None, "run")},
    "oncebus.broker.ingest": {"Ingester._ingest": ("found", None), "Ingester._note_ingested": ("ingested", None)},
    "oncebus.engine.store.entries": {"OutboxEntries.ingest": ("ingest", "inserted")},
}
"""Of each module: the function, and the names of the points when it is called and when it has returned."""

_file: tuple[int, int] | None = None


def note(name: str) -> None:
    global _file
    now, pid = time.monotonic_ns(), os.getpid()
    # Spark forks its workers.
    if _file is None or _file[0] != pid:
        path = os.path.join(FOLDER, str(pid))
        _file = pid, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.write(_file[1], b"%d %s\n" % (now, name.encode()))


def noted(function: Callable[..., Any], before: str | None, after: str | None) -> Callable[..., Any]:
    assert after is None or not inspect.iscoroutinefunction(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            note(before)
        result = function(*args, **kwargs)
        if after is not None:
            note(after)
        return result

    return call


def wrap(module: ModuleType) -> None:
    for path, points in POINTS[module.__name__].items():
        *owner, name = path.split(".")
        where = getattr(module, owner[0]) if owner else module
        setattr(where, name, noted(getattr(where, name), *points))


class Finder(importlib.abc.MetaPathFinder):
    """Finds the modules with points as usual, and wraps them once they are loaded."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in POINTS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_wrap(module: ModuleType) -> None:
                load(module)
                wrap(module)

            spec.loader.exec_module = load_and_wrap  # type: ignore[method-assign]
        return spec


if FOLDER:
    sys.meta_path.insert(0, Finder())
