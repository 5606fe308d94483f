"""Virtual environments with the frameworks, below `build`. No framework is a dependency of Oncebus."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.clients import suite

SOURCES = Path(__file__).parents[2] / "src"


def python(requirements: Path) -> Path:
    """Return the Python of an environment with these requirements, installed if they have changed."""
    with suite.made(f"frameworks/{requirements.stem}", [requirements]) as (folder, is_made):
        if not is_made:
            suite.build(folder, sys.executable, "-m", "venv", str(folder))
            suite.build(folder, str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "-r", str(requirements))
    return folder / "bin" / "python"


def environment(**more: str) -> dict[str, str]:
    """Return the variables for a framework that imports Oncebus from its sources."""
    return {**os.environ, "PYTHONPATH": str(SOURCES), **more}
