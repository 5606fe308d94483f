from __future__ import annotations

import pytest

from oncebus.entities import Filter, Rule, SqlAction, SqlFilter
from oncebus.entities.rules import check_rule
from oncebus.filters import BadRule


@pytest.mark.parametrize(
    "given",
    [SqlFilter("a = "), SqlFilter("reflect('java.lang.System', 'exit') = 1"), SqlFilter("a = @missing")],
)
def test_a_rule_that_cannot_be_read_is_refused(given: Filter) -> None:
    with pytest.raises(BadRule):
        check_rule(Rule("r", given))
    check_rule(Rule("r", SqlFilter("a = 1"), SqlAction("SET a = 2")))
