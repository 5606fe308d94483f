"""The checker on handwritten histories: sound ones pass, and each rule finds the history that breaks it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from . import checker
from .broken import BROKEN
from .checker import check
from .sound import SOUND
from .stories import Story


@pytest.mark.parametrize("tell", SOUND, ids=lambda each: each.__name__)
def test_a_sound_history_passes(tell: Callable[[Story], None]) -> None:
    story = Story()
    tell(story)
    assert check(story.history()) == []


@pytest.mark.parametrize("tell", BROKEN, ids=lambda each: each.__name__)
def test_a_broken_history_is_found(tell: Callable[[Story], None]) -> None:
    story = Story()
    tell(story)
    assert {violation.rule for violation in check(story.history())} == set(BROKEN[tell].split(", "))


def test_each_rule_has_a_history_that_breaks_it() -> None:
    assert {rule.__name__.replace("_", " ") for rule in checker.RULES} == set(", ".join(BROKEN.values()).split(", "))
