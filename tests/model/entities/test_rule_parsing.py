from __future__ import annotations

import pytest

from oncebus.model.entities import Filter, Rule, SqlAction, SqlFilter
from oncebus.model.entities.rule_parsing import check_expressions
from oncebus.model.filters import BadRule


@pytest.mark.parametrize(
    "given",
    [SqlFilter("a = "), SqlFilter("reflect('java.lang.System', 'exit') = 1"), SqlFilter("a = @missing")],
)
def test_a_rule_that_cannot_be_parsed_is_refused(given: Filter) -> None:
    with pytest.raises(BadRule):
        check_expressions(Rule("r", given))
    check_expressions(Rule("r", SqlFilter("a = 1"), SqlAction("SET a = 2")))
