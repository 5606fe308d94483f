"""Plants each bug in a copy of the source and lives until it is found: `python -m tests.simulation.planting [NAME…]`.

A mutation that survives is a missing rule, or a fault that the simulation does not have.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.simulation.mutations import MUTATIONS, ROOT, Mutation, plant

_LIVES = int(os.environ.get("LIVES", "200"))


def find(mutation: Mutation, lives: int = _LIVES) -> str:
    """Return what a planted bug breaks and after how many lives; empty if nothing."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        plant(mutation, source)
        words = [sys.executable, "-m", "tests.simulation", "--lives", str(lives), "--no-shorten"]
        words += ["--world", mutation.world]
        path = os.pathsep.join([str(source), str(ROOT)])
        done = subprocess.run(
            words, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
        )
    if not done.returncode:
        return ""
    said = re.search(r"^seed (\d+).*\n  (.*)", done.stdout, re.MULTILINE)
    return f"life {said[1]}: {said[2][:160]}" if said else done.stderr[-300:]


def main(names: list[str]) -> int:
    survivors = 0
    for mutation in MUTATIONS:
        if names and not any(name in mutation.name for name in names):
            continue
        found = find(mutation)
        survivors += not found
        print(f"{mutation.name:60} {found or 'SURVIVED'}", flush=True)
    return survivors


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
