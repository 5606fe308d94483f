"""The rules that a gateway's servers know."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncebus.model.access import KeyFile, Right
from oncebus.programs.serve.servers import namespace_rules
from oncebus.values.settings import Settings, SettingsError


def test_the_rule_for_metrics_is_limited_however_it_is_written_and_when_it_comes_later(tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    keys.create()
    rules = namespace_rules(keys, Settings(metrics_rule="Scraper"))
    keys.add("scraper", [Right.LISTEN])
    keys.add("scraper2", [Right.LISTEN])
    assert {rule.name: rule.only_metrics for rule in rules()} == {
        "RootManageSharedAccessKey": False,
        "scraper": True,
        "scraper2": False,
    }
    assert not any(rule.only_metrics for rule in namespace_rules(keys, Settings())())


def test_the_last_rule_with_manage_cannot_be_for_metrics(tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    keys.create()
    settings = Settings(metrics_rule="RootManageSharedAccessKey")
    with pytest.raises(SettingsError, match="Setting 'metrics_rule' has value 'RootManageSharedAccessKey'"):
        namespace_rules(keys, settings)
    keys.add("operators", [Right.MANAGE])
    assert [rule.only_metrics for rule in namespace_rules(keys, settings)()] == [True, False]
