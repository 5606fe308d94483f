"""Runs `oncebus doctor` in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.cluster import QUICK_JVM


def doctor(folder: Path, *words: str, **environment: str) -> dict[str, Any]:
    """Run the command in a folder, and return its JSON. It may print nothing else."""
    done = subprocess.run(
        [sys.executable, "-m", "oncebus.programs.cli", "doctor", *words, "--json"],
        env=os.environ | QUICK_JVM | environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if found["passed"] else 1)
    return found


def not_ok(found: dict[str, Any]) -> dict[str, str]:
    """Return what is not ok, by check."""
    return {each["check"]: each["found"] for each in found["findings"] if each["status"] != "ok"}
