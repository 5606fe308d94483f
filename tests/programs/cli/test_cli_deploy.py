"""`oncebus deploy` and `export` against a broker over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncebus.model.entities import Tier
from oncebus.values.durations import HOUR

from .served_broker import Served, served_broker

TYPE = "Microsoft.ServiceBus/namespaces"

TEMPLATE = """{
  // A queue whose window is a parameter, and a topic.
  "$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
  "contentVersion": "1.0.0.0",
  "parameters": {
    "serviceBusNamespaceName": {"type": "string", "defaultValue": "oncebus"},
    "window": {"type": "string", "defaultValue": "PT10M"},
    "deliveries": {"type": "int", "defaultValue": 10},
    "names": {"type": "array", "defaultValue": []}
  },
  "resources": [
    {
      "type": "Microsoft.ServiceBus/namespaces",
      "apiVersion": "2021-11-01",
      "name": "[parameters('serviceBusNamespaceName')]",
      "sku": {"name": "Standard"},
      "resources": [
        {
          "type": "queues",
          "apiVersion": "2021-11-01",
          "name": "orders",
          "dependsOn": ["[resourceId('Microsoft.ServiceBus/namespaces', parameters('serviceBusNamespaceName'))]"],
          "properties": {
            "requiresDuplicateDetection": "true",
            "duplicateDetectionHistoryTimeWindow": "[parameters('window')]",
            "maxDeliveryCount": "[parameters('deliveries')]"
          }
        }
      ]
    },
    {
      "type": "Microsoft.ServiceBus/namespaces/topics",
      "apiVersion": "2021-11-01",
      "name": "[format('{0}/{1}', parameters('serviceBusNamespaceName'), parameters('names')[copyIndex()])]",
      "copy": {"name": "topics", "count": "[length(parameters('names'))]"},
      "dependsOn": ["[parameters('serviceBusNamespaceName')]"]
    }
  ]
}
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Served]:
    with served_broker(tmp_path / "data") as running:
        yield running


@pytest.fixture
def template(tmp_path: Path) -> Path:
    path = tmp_path / "template.json"
    path.write_text(TEMPLATE)
    return path


def lines(text: str) -> list[str]:
    return text.splitlines()


def test_a_template_is_deployed_and_the_difference_is_shown(broker: Served, template: Path) -> None:
    first = lines(broker.ok("deploy", template))
    assert first[:2] == ["= namespace oncebus", "+ queue orders"]
    assert "    + duplicateDetectionHistoryTimeWindow: PT10M" in first
    assert first[-1] == "Deployed: 1 new, 1 unchanged."
    assert lines(broker.ok("deploy", template)) == [
        "= namespace oncebus",
        "= queue orders",
        "Deployed: 2 unchanged.",
    ]
    changed = lines(broker.ok("deploy", template, "--parameters", "window=PT1H", "-p", "deliveries=5"))
    assert "~ queue orders" in changed
    assert "    ~ duplicateDetectionHistoryTimeWindow: PT10M -> PT1H" in changed
    assert "    ~ maxDeliveryCount: 10 -> 5" in changed
    assert "    = lockDuration: PT1M" in changed
    assert broker.broker.catalogue.queue("orders").window == HOUR


def test_what_if_makes_no_changes(broker: Served, template: Path) -> None:
    version = broker.broker.catalogue.version
    text = broker.ok("deploy", template, "--what-if")
    assert lines(text)[-1] == "Would deploy: 1 new, 1 unchanged."
    assert broker.broker.catalogue.version == version


def test_fifty_entities_are_one_change_and_the_second_time_none(broker: Served, template: Path) -> None:
    version = broker.broker.catalogue.version
    names = json.dumps([f"topic-{at}" for at in range(50)])
    assert "Deployed: 51 new, 1 unchanged." in broker.ok("deploy", template, "-p", f"names={names}")
    assert broker.broker.catalogue.version == version + 1
    assert "Deployed: 52 unchanged." in broker.ok("deploy", template, "-p", f"names={names}")
    assert broker.broker.catalogue.version == version + 1


def test_parameters_come_from_files_and_the_last_value_counts(broker: Served, template: Path, tmp_path: Path) -> None:
    file = tmp_path / "values.json"
    content = {"$schema": "x", "parameters": {"Window": {"value": "PT2H"}, "deliveries": {"value": 7}}}
    file.write_text(json.dumps(content) + " // mine")
    broker.ok("deploy", template, "--parameters", f"@{file}", "--parameters", "window=PT3H")
    made = broker.broker.catalogue.queue("orders")
    assert (made.window, made.max_delivery_count) == (3 * HOUR, 7)
    broker.ok("deploy", template, "-p", "window=PT3H", "-p", file)
    assert broker.broker.catalogue.queue("orders").window == 2 * HOUR


def test_every_error_is_a_line_with_its_place_and_nothing_is_changed(
    broker: Served, template: Path, tmp_path: Path
) -> None:
    version = broker.broker.catalogue.version
    content = TEMPLATE.replace("\"[parameters('deliveries')]\"", '"[parametrs(\'deliveries\')]", "colour": 1')
    template.write_text(content)
    said = broker.refusals("deploy", template, "-p", "window=P25D", "-p", "sise=1")
    place = f"Template '{template}': resources[0].resources[0].properties"
    assert said == [
        f"Template '{template}': The parameter 'sise' is given, but the template does not declare it.",
        f"{place}.maxDeliveryCount: The function 'parametrs' is unknown. Did you mean 'parameters'?",
        f"{place}.colour: The property 'colour' is not known.",
        f"{place}.duplicateDetectionHistoryTimeWindow: The value supplied must be between 00:00:20 and 7.00:00:00."
        " Parameter name: DuplicateDetectionHistoryTimeWindow Actual value was 25.00:00:00.",
    ]
    assert broker.broker.catalogue.version == version


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["none.json"], "Template 'none.json': It cannot be read: No such file or directory."),
        (["{template}", "-p", "none.json"], "Parameter file 'none.json': It cannot be read: No such file"),
        (["{template}", "-p", "deliveries=many"], "has value 'deliveries=many': The value 'many' is not an int."),
        (["{template}", "-p", "names=[1"], "has value 'names=[1': line 1, column 3"),
        (["{template}", "-p", "{template}"], "parameters.window: The value does not have the form"),
        (["{template}", "-p", "{list}"], 'It does not have the form {{"parameters": {{"name": {{"value": …}}}}}}.'),
    ],
)
def test_unreadable_files_and_values_are_reported(
    broker: Served, template: Path, tmp_path: Path, words: list[str], said: str
) -> None:
    (tmp_path / "list.json").write_text("[]")
    filled = [
        word.replace("{template}", str(template)).replace("{list}", str(tmp_path / "list.json")) for word in words
    ]
    assert any(said.format() in line for line in broker.refusals("deploy", *filled))


def test_a_template_may_come_from_standard_input(broker: Served) -> None:
    assert "+ queue orders" in broker.ok("deploy", "-", stdin=TEMPLATE)
    result = broker.run("deploy", "-", stdin="{")
    assert result.exit_code == 1
    assert result.stderr.startswith("oncebus: Template '-': It is not JSON: line 1, column 2")


def test_json_output_is_the_resource_managers_answer(broker: Served, template: Path) -> None:
    answer = broker.json("deploy", template, "--name", "my deployment")
    assert answer["name"] == "my-deployment"
    assert answer["properties"]["provisioningState"] == "Succeeded"
    assert [each["changeType"] for each in answer["properties"]["changes"]] == ["NoChange", "Create"]
    assert broker.json("deploy", template, "--what-if")["status"] == "Succeeded"


def test_a_note_about_something_without_effect_goes_to_standard_error(broker: Served, template: Path) -> None:
    result = broker.run("deploy", template, "-p", "serviceBusNamespaceName=prod")
    assert result.exit_code == 0
    assert result.stderr == "oncebus: Note: The template names the namespace 'prod', but is deployed to 'oncebus'.\n"


def test_a_namespace_is_exported_and_deployed_elsewhere(broker: Served, tmp_path: Path) -> None:
    broker.ok("queue", "create", "-n", "a/b", "--enable-duplicate-detection")
    broker.ok("topic", "create", "-n", "news")
    broker.ok("subscription", "create", "--topic-name", "news", "-n", "all", "--forward-to", "a/b")
    file = tmp_path / "namespace.json"
    assert broker.ok("export", "--out", file) == f"5 resources written to '{file}'.\n"
    assert json.loads(broker.ok("export")) == json.loads(file.read_text())
    with served_broker(tmp_path / "other") as other:
        assert "Deployed: 3 new, 2 unchanged." in other.ok("deploy", file)
        assert other.ok("export") == broker.ok("export")


def test_a_note_about_something_that_cannot_be_exported_goes_to_standard_error(broker: Served) -> None:
    broker.ok("topic", "create", "-n", "news")
    where = ("--topic-name", "news")
    broker.ok("subscription", "create", *where, "-n", "none")
    broker.ok("rule", "delete", *where, "--subscription-name", "none", "-n", "$Default")
    result = broker.run("export")
    assert result.exit_code == 0
    assert result.stderr.startswith("oncebus: Note: 'news/Subscriptions/none' has no rules.")


def test_a_new_tier_in_the_template_comes_with_a_note_about_the_setting(tmp_path: Path) -> None:
    content: dict[str, Any] = {"resources": [{"type": TYPE, "name": "x", "sku": {"name": "Standard"}}]}
    (tmp_path / "t.json").write_text(json.dumps(content))
    with served_broker(tmp_path / "data", Tier.PREMIUM) as broker:
        result = broker.run("deploy", tmp_path / "t.json")
        assert "    ~ sku: Premium -> Standard" in result.stdout
        assert "If the broker has the setting 'tier', change it too" in result.stderr
