"""The examples in the docs work."""

from __future__ import annotations

import re
from pathlib import Path

from oncebus.protocols.emulator.config import read_config
from oncebus.protocols.management.documents import parse_document
from oncebus.protocols.management.problems import Problems
from oncebus.protocols.templates.evaluation import Evaluator
from oncebus.protocols.templates.functions import FUNCTIONS
from oncebus.protocols.templates.scope import Deployment

from .template_scenes import planned

DOCS = Path(__file__).parents[3] / "docs" / "reference"


def blocks(name: str) -> list[str]:
    return re.findall(r"```json\n(.*?)```", (DOCS / name).read_text(), re.DOTALL)


def test_the_template_in_the_docs_can_be_deployed() -> None:
    made = planned(parse_document(blocks("templates.md")[0]), window="PT1H")
    assert sorted(entity.path for entity in made.after.entities.values()) == [
        "green",
        "prices",
        "prices/Subscriptions/high",
        "red",
    ]


def test_the_configuration_in_the_docs_can_be_used() -> None:
    problems = Problems()
    wanted = read_config(parse_document(blocks("emulator.md")[0]), problems)
    assert not problems, list(problems)
    assert [entity.name for entity in wanted.entities] == ["orders", "prices", "high"]
    assert len(wanted.rules) == 2


def test_every_function_is_in_the_docs() -> None:
    text = (DOCS / "templates.md").read_text()
    listed = text.partition("**Functions**, in any letter case: `")[2].partition("`")[0].split()
    evaluator = Evaluator({}, lambda name: name, Deployment(), Problems())
    assert {name.lower() for name in listed} == {*FUNCTIONS, *evaluator._lazy}
    assert {name for name in listed if name.lower() in FUNCTIONS} == {each.name for each in FUNCTIONS.values()}
