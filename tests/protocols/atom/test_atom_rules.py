"""Violations of a namespace's rules, with the service's texts. The Resource Manager's tests use the same cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.protocols.atom.admin import Admin, described, refusal, sub_code, titles
from tests.protocols.atom.rule_cases import CASES, IDS, Case
from tests.protocols.http.http_front import Front, scenario

PATHS = {"Queue": "thing", "Topic": "thing", "Subscription": "news/subscriptions/thing"}


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_violation_is_rejected_with_the_services_text(tmp_path: Path, case: Case) -> None:
    async def play(front: Front) -> None:
        admin, path = Admin(front), PATHS[case.kind]
        if case.kind == "Subscription":
            await front.topic("news")
        if case.before is not None:
            before = described(await admin.create(path, case.kind, **case.before))
            refused = await admin.update(path, case.kind, **case.given)
        else:
            refused = await admin.create(path, case.kind, **case.given)
        status, detail = refusal(refused)
        assert status == 400
        assert case.text in detail
        assert sub_code(detail) in (40000, 40400)
        # Nothing has happened.
        if case.before is None:
            missing = await admin.get(path)
            assert missing.status == 404 if case.kind == "Subscription" else titles(missing) == []
        else:
            after = described(await admin.get(path))
            assert {name: after[name] for name in case.given} == {name: before[name] for name in case.given}

    scenario(tmp_path, play, tier=case.tier)


@pytest.mark.parametrize("kind", ["Queue", "Topic"])
def test_a_description_without_properties_gets_the_defaults(tmp_path: Path, kind: str) -> None:
    async def play(front: Front) -> None:
        admin = Admin(front)
        made = described(await admin.create("thing", kind))
        expected = {
            "RequiresDuplicateDetection": "false",
            "DuplicateDetectionHistoryTimeWindow": "PT10M",
            "DefaultMessageTimeToLive": "P10675199DT2H48M5.4775807S",
            "AutoDeleteOnIdle": "P10675199DT2H48M5.4775807S",
            "MaxSizeInMegabytes": "1024",
            "EnablePartitioning": "false",
            "Status": "Active",
            "EntityAvailabilityStatus": "Available",
        }
        if kind == "Queue":
            expected |= {"LockDuration": "PT1M", "MaxDeliveryCount": "10", "RequiresSession": "false"}
        assert {name: made[name] for name in expected} == expected

    scenario(tmp_path, play)


@pytest.mark.parametrize("kind", ["Queue", "Topic"])
def test_the_window_of_an_entity_that_detects_may_be_changed(tmp_path: Path, kind: str) -> None:
    async def play(front: Front) -> None:
        admin = Admin(front)
        for window in ("PT20S", "P7D"):
            made = await admin.create(
                window, kind, RequiresDuplicateDetection=True, DuplicateDetectionHistoryTimeWindow=window
            )
            assert described(made)["DuplicateDetectionHistoryTimeWindow"] == window
        changed = await admin.update("PT20S", kind, DuplicateDetectionHistoryTimeWindow="01:00:00")
        assert changed.status == 200
        found = described(await admin.get("PT20S"))
        assert (found["DuplicateDetectionHistoryTimeWindow"], found["RequiresDuplicateDetection"]) == ("PT1H", "true")
        entity = front.broker.catalogue.find("PT20S")
        assert entity is not None
        assert front.broker.catalogue.window_of(entity) == 3600 * 1_000_000

    scenario(tmp_path, play)


def test_a_subscription_has_no_detection_of_its_own(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.topic("news", requires_duplicate_detection=True)
        for name in ("RequiresDuplicateDetection", "DuplicateDetectionHistoryTimeWindow"):
            refused = await Admin(front).create("news/subscriptions/all", "Subscription", **{name: "true"})
            assert refusal(refused) == (
                400,
                f"SubCode=40000. The element '{name}' is not allowed in a SubscriptionDescription.",
            )

    scenario(tmp_path, play)


@pytest.mark.parametrize(
    ("path", "kind", "text"),
    [
        ("x" * 261, "Queue", "exceeds the '260' character limit."),
        ("a%20b", "Queue", "'a b' contains character(s) that is not allowed by Service Bus."),
        ("%C3%B6deme", "Topic", "'ödeme' contains character(s) that is not allowed by Service Bus."),
        (f"news/subscriptions/{'x' * 51}", "Subscription", "exceeds the '50' character limit."),
        ("news/subscriptions/%C3%B6", "Subscription", "'ö' contains character(s) that is not allowed"),
        ("news/subscriptions/all/rules/a%20b", "Rule", "'a b' contains character(s) that is not allowed"),
    ],
)
def test_names_that_entities_cannot_have(tmp_path: Path, path: str, kind: str, text: str) -> None:
    async def play(front: Front) -> None:
        await front.topic("news", "all")
        status, detail = refusal(await Admin(front).create(path, kind))
        assert status == 400
        assert text in detail

    scenario(tmp_path, play)
