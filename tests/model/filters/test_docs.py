from __future__ import annotations

import re
from pathlib import Path

from oncebus.model.filters.properties import SETTABLE
from oncebus.model.filters.routing import Routed

DOCS = (Path(__file__).parents[3] / "docs" / "reference" / "filters.md").read_text()


def test_the_example_in_the_docs_makes_the_copies_it_speaks_of() -> None:
    example = re.search(r"```python\n(.*?)```", DOCS, re.DOTALL)
    assert example is not None
    names: dict[str, object] = {}
    exec(example[1], names)
    routed = names["routed"]
    assert isinstance(routed, Routed)
    assert [copy.rule for copy in routed.copies] == [None, "red"]
    assert routed.copies[1].properties.user == {"color": "red", "quantity": 5, "RuleName": "red"}


def test_the_docs_name_the_properties_that_an_action_may_change() -> None:
    assert all(name in DOCS for name in SETTABLE)
