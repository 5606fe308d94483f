"""Installs packages from npm, once per virtual environment."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from pathlib import Path

_FILES = ("package.json", "package-lock.json")


def installed(wanted: Path, into: Path) -> Path:
    """Return the folder `node_modules` with the packages from the package.json in the folder `wanted`."""
    for program in ("node", "npm"):
        assert shutil.which(program) is not None, f"The program '{program}' was not found. Install Node 20 or later."
    digest = hashlib.sha256(b"".join((wanted / name).read_bytes() for name in _FILES)).hexdigest()
    mark = into / "installed"
    into.mkdir(exist_ok=True)
    with (into / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not mark.exists() or mark.read_text() != digest:
            for name in _FILES:
                shutil.copy(wanted / name, into)
            command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
            done = subprocess.run(command, cwd=into, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"npm ci failed: {done.stderr}"
            mark.write_text(digest)
    return into / "node_modules"
