"""The unit for systemd, as far as it can be checked without systemd as process 1."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from oncebus.values.settings import SETTINGS, variable

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy" / "systemd" / "oncebus.service"
PAGE = ROOT / "docs" / "guides" / "production.md"


def test_the_unit_fits_the_page_that_installs_it() -> None:
    unit, page = UNIT.read_text(), PAGE.read_text()
    program, settings = re.search(r"^ExecStart=(\S+)/bin/oncebus serve --settings (\S+)$", unit, re.MULTILINE).groups()  # type: ignore[union-attr]
    assert f"python3 -m venv {program}\n" in page
    assert f"`{settings}`:" in page
    assert "deploy/systemd/oncebus.service /etc/systemd/system/" in page
    # What the broker writes must lie in the folders that systemd makes for it.
    assert 'data = "/var/lib/oncebus/data"' in page
    assert "\nStateDirectory=oncebus\n" in unit


def test_its_variables_are_settings() -> None:
    named = set(re.findall(r"^Environment=(\w+)=", UNIT.read_text(), re.MULTILINE))
    assert named
    assert named <= {variable(name) for name in SETTINGS}


@pytest.mark.release
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    assert shutil.which("systemd-analyze"), "Install the package systemd."
    copy = tmp_path / UNIT.name
    # The program must exist for systemd, and is not installed here.
    copy.write_text(
        UNIT.read_text().replace("/opt/oncebus/bin/oncebus", "/bin/true").replace("User=oncebus", "User=root")
    )
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
