"""The official administration clients, unmodified, against a real `oncebus serve --tls`.

All tests are in this module, so that one start of Spark suffices.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError, SerializationError

from oncebus.model.entities import Tier
from tests.clients import javascript
from tests.clients.test_samples import DOCS, blocks
from tests.programs.serve.clients import ENVIRONMENT
from tests.programs.serve.programs import until
from tests.programs.serve.services import PATIENCE
from tests.protocols.atom.rule_cases import CASES, IDS, Case
from tests.protocols.atom.served import administration

from .administrators import Place
from .conftest import Administrators
from .portal_visit import visit_portal
from .served import Served

HERE = Path(__file__).parent / "javascript"
CLIENTS = ("Atom", "ResourceManager")

MADE: dict[str, dict[str, object]] = {
    "Queue": {
        "RequiresDuplicateDetection": True,
        "DuplicateDetectionHistoryTimeWindow": timedelta(hours=1),
        "LockDuration": timedelta(seconds=13),
        "UserMetadata": "größer & <schöner>",
    },
    "Topic": {
        "RequiresDuplicateDetection": True,
        "DuplicateDetectionHistoryTimeWindow": timedelta(hours=1),
        "UserMetadata": "x",
    },
    "Subscription": {
        "LockDuration": timedelta(seconds=13),
        "MaxDeliveryCount": 3,
        "DeadLetteringOnMessageExpiration": True,
    },
}
CHANGED: dict[str, dict[str, object]] = {
    "Queue": {"DuplicateDetectionHistoryTimeWindow": timedelta(days=2), "MaxDeliveryCount": 7},
    "Topic": {"DuplicateDetectionHistoryTimeWindow": timedelta(days=2), "MaxSizeInMegabytes": 2048},
    "Subscription": {"MaxDeliveryCount": 9},
}

CHECKED_BY_THE_CLIENT: dict[tuple[str, str], type[Exception]] = {
    ("Atom", "Standard-Topic-DefaultMessageTimeToLive=soon"): SerializationError,
}
"""Cases that a client rejects itself, with its exception: they never reach the broker. JavaScript has none."""


# From creation to deletion


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("client", CLIENTS)
def test_an_entity_from_creation_to_deletion(
    serving: Served, administrators: Administrators, client: str, kind: str
) -> None:
    admin, made, changed = administrators(client, Tier.STANDARD), MADE[kind], CHANGED[kind]
    top = f"{client}/life-of-a-{kind}"
    place = Place.of(kind, top, "one") if kind == "Subscription" else Place.of(kind, top)
    if kind == "Subscription":
        admin.create(Place.of("Topic", top))
    admin.create(place, made)
    assert admin.values(place, made) == made
    assert place.names[-1] in admin.names(place)
    admin.change(place, changed)
    assert admin.values(place, made | changed) == made | changed
    taken = admin.cannot_be_made_too(place)
    if taken is not None:
        with pytest.raises(ResourceExistsError, match="already exists"):
            admin.create(taken)

    if kind == "Topic":
        admin.create(Place.of("Subscription", top, "all"))
    for message_id in ("a", "b", "a", "c"):
        assert serving.http.send(top, message_id, "x") == 201
    if kind == "Topic":
        until(lambda: admin.held(place) > 0, "there is something in the topic", PATIENCE)
    else:
        # The topic of the subscription does not detect.
        count = 3 if kind == "Queue" else 4
        until(lambda: admin.held(place) == count, f"{count} messages are counted", PATIENCE)

    found = admin.find(place)
    admin.delete(place)
    assert place.names[-1] not in admin.names(place)
    with pytest.raises(ResourceNotFoundError, match=r"could not be found|does not exist"):
        admin.find(place)
    if admin.is_strict:
        with pytest.raises(ResourceNotFoundError):
            admin.send_back(place, found, {})
        with pytest.raises(ResourceNotFoundError):
            admin.delete(place)
    else:
        admin.delete(place)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_rule_from_creation_to_deletion(serving: Served, administrators: Administrators, client: str) -> None:
    admin, topic = administrators(client, Tier.STANDARD), f"{client}/ruled"
    subscription, place = Place.of("Subscription", topic, "some"), Place.of("Rule", topic, "some", "dear")
    admin.create(Place.of("Topic", topic))
    admin.create(subscription)
    admin.create(place, admin.rule("price > 10", "SET dear = 1"))
    assert admin.rule_at(place) == ("price > 10", "SET dear = 1")
    assert admin.names(place) == ["$Default", "dear"]
    admin.delete(Place.of("Rule", topic, "some", "$Default"))
    assert admin.names(place) == ["dear"]
    admin.change(place, admin.rule("price > 100", "SET dear = 2"))
    assert admin.rule_at(place) == ("price > 100", "SET dear = 2")
    taken = admin.cannot_be_made_too(place)
    if taken is not None:
        with pytest.raises(ResourceExistsError, match="already exists"):
            admin.create(taken, admin.rule("1 = 1", "SET x = 1"))

    # With the old rule, both messages would arrive.
    for price in ("50", "150"):
        assert serving.http.request("POST", f"/{topic}/messages", price, {"price": price})[0] == 201
    until(lambda: admin.held(subscription) > 0, "a message is counted", PATIENCE)
    assert admin.held(subscription) == 1
    found = serving.http.exchange("DELETE", f"/{topic}/subscriptions/some/messages/head?timeout=60")
    assert (found[2], found[1]["dear"]) == (b"150", "2")

    sent_back = admin.find(place)
    admin.delete(place)
    assert admin.names(place) == []
    with pytest.raises(ResourceNotFoundError, match=r"could not be found|does not exist"):
        admin.find(place)
    if admin.is_strict:
        with pytest.raises(ResourceNotFoundError):
            admin.send_back(place, sent_back, {})
        with pytest.raises(ResourceNotFoundError):
            admin.delete(place)
    else:
        admin.delete(place)


def run_in_node(name: str, broker: Served, files: Mapping[str, object], **settings: str) -> int:
    """Run a file of tests with Node's own test runner; all must pass. Return their number."""
    with javascript.workplace(HERE / name) as folder:
        for file, content in files.items():
            (folder / file).write_text(json.dumps(content))
        environment = {**ENVIRONMENT, "NODE_EXTRA_CA_CERTS": str(broker.certificate), **settings}
        said = javascript.run(folder, ["node", "--test", "--test-reporter=tap", name], environment)
    print(said)
    passed = re.search(r"^# pass (\d+)$", said, re.MULTILINE)
    assert passed is not None
    return int(passed[1])


def test_entities_from_creation_to_deletion_in_javascript(serving: Served) -> None:
    settings = {"ADMINISTRATION": serving.string, "BROKER": f"https://{serving.host}", "TOKEN": serving.token}
    assert run_in_node("lives.mjs", serving, {}, **settings) == 4


# Refusals


@pytest.mark.parametrize("case", CASES, ids=IDS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_violation_is_rejected_with_the_services_text(
    administrators: Administrators, client: str, case: Case
) -> None:
    admin, name = administrators(client, case.tier), f"{client}-case-{CASES.index(case)}"
    place = Place.of(case.kind, name)
    if case.kind == "Subscription":
        place = Place.of(case.kind, f"{name}-topic", name)
        admin.create(Place.of("Topic", *place.above))
    if case.before is not None:
        admin.create(place, case.before)
        before = admin.values(place, case.given)
    expected = CHECKED_BY_THE_CLIENT.get((client, case.name), HttpResponseError)
    ask = admin.create if case.before is None else admin.change
    with pytest.raises(expected) as refused:
        ask(place, case.given)
    if isinstance(refused.value, HttpResponseError):
        assert refused.value.status_code == 400
        assert case.text in str(refused.value.message)
    # Nothing has happened.
    if case.before is None:
        with pytest.raises(ResourceNotFoundError):
            admin.find(place)
    else:
        assert admin.values(place, case.given) == before


def test_every_named_case_exists() -> None:
    assert {name for _, name in CHECKED_BY_THE_CLIENT} <= set(IDS)
    assert {case.tier for case in CASES} == set(Tier)


def in_camel_case(values: Mapping[str, object] | None) -> dict[str, object] | None:
    return None if values is None else {name[0].lower() + name[1:]: value for name, value in values.items()}


def test_a_violation_is_rejected_in_javascript(tiers: Mapping[Tier, Served], tmp_path: Path) -> None:
    cases = [
        {
            "name": case.name,
            "kind": case.kind,
            "tier": case.tier,
            "given": in_camel_case(case.given),
            "before": in_camel_case(case.before),
            "text": case.text,
        }
        for case in CASES
    ]
    trusted = tmp_path / "trusted.pem"
    trusted.write_text("".join(broker.certificate.read_text() for broker in tiers.values()))
    settings = {
        "BROKERS": json.dumps({tier: broker.string for tier, broker in tiers.items()}),
        "NODE_EXTRA_CA_CERTS": str(trusted),
    }
    assert run_in_node("rules.mjs", tiers[Tier.STANDARD], {"cases.json": cases}, **settings) == len(CASES)


# Portal and deployments


def test_the_portal_answers_and_shows_nothing_without_a_key(serving: Served, administrators: Administrators) -> None:
    administrators("Atom", Tier.STANDARD).create(Place.of("Queue", "seen-by-few"))
    visit_portal(serving, "seen-by-few")


def run(*words: str | Path) -> str:
    """Run a command of Oncebus, and return its output."""
    command = [sys.executable, "-m", "oncebus.programs.cli", *map(str, words)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def copies(kind: str, name: str, count: int, properties: Mapping[str, Any], *after: str) -> dict[str, object]:
    return {
        "type": f"Microsoft.ServiceBus/namespaces/{kind}",
        "apiVersion": "2024-01-01",
        "name": f"[format('oncebus/{name}', copyIndex())]",
        "copy": {"name": kind, "count": count},
        "dependsOn": list(after),
        "properties": properties,
    }


def test_fifty_entities_are_deployed_and_the_second_time_nothing_is_changed(serving: Served, tmp_path: Path) -> None:
    template = tmp_path / "template.json"
    detecting = {"requiresDuplicateDetection": True, "duplicateDetectionHistoryTimeWindow": "[parameters('window')]"}
    resources = [
        copies("queues", "deployed-queue-{0}", 30, detecting),
        copies("topics", "deployed-topic-{0}", 10, detecting),
        copies("topics/subscriptions", "deployed-topic-{0}/some", 10, {"maxDeliveryCount": 3}, "topics"),
    ]
    parameters = {"window": {"type": "string", "defaultValue": "PT10M"}}
    template.write_text(json.dumps({"parameters": parameters, "resources": resources}))
    words = ("deploy", template, "--parameters", "window=PT1H", "--data", serving.data)
    with administration(serving) as admin:
        for expected in ("Deployed: 50 new.", "Deployed: 50 unchanged."):
            changed_at = admin.get_namespace_properties().modified_at_utc
            begin = time.monotonic()
            said = run(*words).splitlines()
            print(f"{expected} It took {time.monotonic() - begin:.2f} s")
            assert said[-1] == expected
        assert {line[0] for line in said[:-1]} == {"="}
        assert admin.get_namespace_properties().modified_at_utc == changed_at
        names = [queue.name for queue in admin.list_queues() if queue.name.startswith("deployed-queue-")]
        assert len(names) == 30
        assert admin.get_queue(names[-1]).duplicate_detection_history_time_window == timedelta(hours=1)
        assert admin.get_subscription("deployed-topic-9", "some").max_delivery_count == 3


# Samples in the documentation


def run_sample(code: str, serving: Served, folder: Path, changes: Mapping[str, str]) -> None:
    """Run a sample as a reader would, with the port and other settings replaced."""
    for text, other in {"localhost:5300": serving.host, **changes}.items():
        assert text in code
        code = code.replace(text, other)
    (folder / "oncebus-data").symlink_to(serving.data)
    (folder / "sample.py").write_text(code)
    javascript.run(folder, [sys.executable, "-W", "error", "sample.py"], ENVIRONMENT)


def is_detecting(serving: Served, queue: str) -> timedelta:
    """Return the window of a queue, which must have detection."""
    with administration(serving) as admin:
        found = admin.get_queue(queue)
    assert found.requires_duplicate_detection is True
    assert isinstance(found.duplicate_detection_history_time_window, timedelta)
    return found.duplicate_detection_history_time_window


def test_the_sample_of_the_atom_page_runs(serving: Served, tmp_path: Path) -> None:
    (code,) = blocks("reference/atom.md", "python")
    own = {"orders": "sample/atom", "SharedAccessKey=…": f"SharedAccessKey={serving.root.primary_key}"}
    run_sample(code, serving, tmp_path, own)
    assert is_detecting(serving, "sample/atom") == timedelta(hours=1)


def test_the_sample_of_the_resource_managers_page_runs(serving: Served, tmp_path: Path) -> None:
    (code,) = blocks("reference/arm.md", "python")
    token = run("token", "--data", serving.data).strip()
    given = f"token, expires = {token!r}, {int(time.time()) + 3600}\n"
    run_sample(given + code, serving, tmp_path, {"orders": "sample/arm"})
    assert is_detecting(serving, "sample/arm") == timedelta(minutes=10)


def test_the_curl_request_of_the_atom_page_is_accepted(serving: Served) -> None:
    page = (DOCS / "reference" / "atom.md").read_text()
    found = re.search(r"curl -X PUT -H .* 'http://127\.0\.0\.1:5300/orders(\?[^']+)' -d '(.+?)'\n", page, re.DOTALL)
    assert found is not None
    status, _, said = serving.http.request("PUT", f"/sample/curl{found[1]}", found[2])
    assert status == 201, said
    assert is_detecting(serving, "sample/curl") == timedelta(hours=1)
