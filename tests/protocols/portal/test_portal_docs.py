"""The documentation of the portal agrees with the code."""

from __future__ import annotations

import re
from pathlib import Path

import oncebus.protocols.portal
from oncebus.model.access import Operation
from oncebus.model.entities.timespans import in_words
from oncebus.protocols.portal.sessions import FAILURES, FAILURES_WITHIN, IDLE, LONGEST, MOST_SESSIONS

DOCS = Path(__file__).parents[3] / "docs" / "reference"
TEXT = (DOCS / "portal.md").read_text()
LARGEST_PICTURE = 250 * 1024


def test_every_picture_exists_and_is_small() -> None:
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", TEXT)
    assert len(pictures) >= 4
    for picture in pictures:
        assert 0 < (DOCS / picture).stat().st_size < LARGEST_PICTURE


def test_the_limits_are_those_of_the_code() -> None:
    words = " ".join(TEXT.split())
    assert f"kept in memory, {MOST_SESSIONS} at most" in words
    assert f"{FAILURES} failures to sign in" in words
    assert f"within {in_words(FAILURES_WITHIN)}" in words
    assert f"after {in_words(LONGEST)} in any case" in words
    assert in_words(IDLE) == "1 hour"
    assert "after an hour in which nothing was done" in words


def test_the_rights_are_those_of_the_one_table() -> None:
    needed = {
        "see the overview": Operation.ENUMERATE,
        "see an entity's figures": Operation.READ_ENTITY,
        "create, change, delete": Operation.CREATE_ENTITY,
        "resubmit dead letters": Operation.RESUBMIT,
        "see the quarantine": Operation.QUARANTINE,
        "peek at messages": Operation.PEEK,
        "send a test message": Operation.SEND,
    }
    for beginning, operation in needed.items():
        [row] = re.findall(rf"\| {re.escape(beginning)}[^|]*\| ([A-Za-z]+) \|", TEXT)
        assert row == operation.right


def test_modules_are_named_as_they_are() -> None:

    folder = Path(oncebus.protocols.portal.__file__).parent
    there = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    table = TEXT[TEXT.index("| module |") : TEXT.index("## Behind a proxy")]
    named = set(re.findall(r"`(\w+)`", table))
    assert named <= there
    assert there - named <= {"links"}
