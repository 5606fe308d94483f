from __future__ import annotations

import pytest

from oncebus.model.entities import Filter, Rule, SqlAction, SqlFilter
from oncebus.model.entities.rule_parsing import compile_rule
from oncebus.model.filters.errors import BadRule


@pytest.mark.parametrize(
    "given",
    [SqlFilter("a = "), SqlFilter("reflect('java.lang.System', 'exit') = 1"), SqlFilter("a = @missing")],
)
def test_a_rule_that_cannot_be_parsed_is_refused(given: Filter) -> None:
    with pytest.raises(BadRule):
        compile_rule(Rule("r", given))
    compile_rule(Rule("r", SqlFilter("a = 1"), SqlAction("SET a = 2")))
