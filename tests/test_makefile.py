"""`make help` lists all targets, so that nobody has to read the Makefile to find one."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_help_lists_every_target_with_a_description() -> None:
    text = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):(?!=)", text, re.MULTILINE))
    declared = re.search(r"^\.PHONY: (.+)$", text, re.MULTILINE)
    assert declared is not None
    assert set(declared[1].split()) == targets
    done = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    listed = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert set(listed) == targets
    assert all(listed.values())
