"""Descriptions of entities that a namespace rejects over every protocol, with the service's error texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from oncebus.model.entities import Tier

BETWEEN = "The value supplied must be between {} and {}.\nParameter name: {}\nActual value was {}."
WINDOW = BETWEEN.format("00:00:20", "7.00:00:00", "DuplicateDetectionHistoryTimeWindow", "{}")


class Case(NamedTuple):
    """A description that is rejected. With `before`, it is a change of an entity that was created with that."""

    kind: str
    given: Mapping[str, str | int | bool]
    text: str
    tier: Tier = Tier.STANDARD
    before: Mapping[str, str | int | bool] | None = None

    @property
    def name(self) -> str:
        change = "-change" if self.before is not None else ""
        return f"{self.tier}-{self.kind}{change}-{'-'.join(f'{key}={value}' for key, value in self.given.items())}"


def _unchangeable(kind: str, name: str) -> str:
    return f"The value for the {name} property of an existing {kind} cannot be changed."


def _not_in(tier: Tier, name: str, kind: str = "Queue") -> str:
    return f"'{name}' cannot be set when creating a {kind} because the namespace 'oncebus' is using the '{tier}' tier."


_DETECTING = {"RequiresDuplicateDetection": True}

CASES = [
    # Detection is fixed at creation.
    *(
        Case(
            kind, {"RequiresDuplicateDetection": wanted}, _unchangeable(kind, "RequiresDuplicateDetection"), before=was
        )
        for kind in ("Queue", "Topic")
        for wanted, was in ((True, {}), (False, _DETECTING))
    ),
    # The window is 20 seconds to 7 days, at creation and later.
    *(
        Case(kind, {"DuplicateDetectionHistoryTimeWindow": text}, WINDOW.format(actual), before=before)
        for kind in ("Queue", "Topic")
        for text, actual in (
            ("PT19.999S", "00:00:19.9990000"),
            ("P7DT0.001S", "7.00:00:00.0010000"),
            ("P25D", "25.00:00:00"),
        )
        for before in (None, _DETECTING)
    ),
    # Sessions and partitions are fixed at creation.
    Case("Queue", {"RequiresSession": True}, _unchangeable("Queue", "RequiresSession"), before={}),
    Case("Subscription", {"RequiresSession": True}, _unchangeable("Subscription", "RequiresSession"), before={}),
    Case("Queue", {"EnablePartitioning": True}, "Partitioning cannot be changed for Queue.", before={}),
    Case("Topic", {"EnablePartitioning": True}, "Partitioning cannot be changed for Topic.", before={}),
    # Features that a tier does not have.
    Case("Queue", _DETECTING, _not_in(Tier.BASIC, "RequiresDuplicateDetection"), Tier.BASIC),
    Case("Queue", {"RequiresSession": True}, _not_in(Tier.BASIC, "RequiresSession"), Tier.BASIC),
    Case("Queue", {"ForwardTo": "other"}, _not_in(Tier.BASIC, "ForwardTo"), Tier.BASIC),
    Case(
        "Topic", {}, "Cannot operate on type Topic because the namespace 'oncebus' is using 'Basic' tier.", Tier.BASIC
    ),
    Case("Queue", {"EnablePartitioning": True}, _not_in(Tier.PREMIUM, "EnablePartitioning"), Tier.PREMIUM),
    Case("Topic", {"EnablePartitioning": True}, _not_in(Tier.PREMIUM, "EnablePartitioning", "Topic"), Tier.PREMIUM),
    Case("Queue", {"MaxMessageSizeInKilobytes": 1024}, _not_in(Tier.STANDARD, "MaxMessageSizeInKilobytes")),
    *(
        Case(
            kind,
            {"EnableExpress": True, **_DETECTING},
            "Both DelayedPersistence and RequiresDuplicateDetection property cannot be enabled together.",
        )
        for kind in ("Queue", "Topic")
    ),
    # Other properties.
    Case("Queue", {"LockDuration": "PT6M"}, "The supplied lock time exceeds the allowed maximum of '5' minutes."),
    Case(
        "Subscription", {"LockDuration": "PT6M"}, "The supplied lock time exceeds the allowed maximum of '5' minutes."
    ),
    Case("Queue", {"MaxDeliveryCount": 0}, BETWEEN.format("1", "2000", "MaxDeliveryCount", "0")),
    Case("Subscription", {"MaxDeliveryCount": 2001}, BETWEEN.format("1", "2000", "MaxDeliveryCount", "2001")),
    Case(
        "Queue",
        {"MaxSizeInMegabytes": 5},
        "The specified value 5 is invalid. The property 'MaxSizeInMegabytes', must be",
    ),
    Case(
        "Topic",
        {"AutoDeleteOnIdle": "PT4M"},
        "The value supplied must be between 00:05:00 and 10675199.02:48:05.4775807.",
    ),
    Case("Queue", {"ForwardTo": "nowhere"}, "The auto forwarding destination entity 'nowhere' does not exist."),
    Case("Queue", {"UserMetadata": "x" * 1025}, "The argument 'UserMetadata' cannot exceed 1024 characters."),
    Case(
        "Queue",
        {"Status": "Sleeping"},
        "has value 'Sleeping'. Not one of Active, Disabled, SendDisabled, ReceiveDisabled.",
    ),
    Case("Topic", {"DefaultMessageTimeToLive": "soon"}, "is not a duration. Write it like 'PT10M' or '00:10:00'."),
]
IDS = [case.name for case in CASES]
