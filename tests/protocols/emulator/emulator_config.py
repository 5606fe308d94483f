"""Configuration files in the official emulator's format."""

from __future__ import annotations

import copy
from typing import Any

SAMPLE: dict[str, Any] = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "sbemulatorns",
                "Queues": [
                    {
                        "Name": "orders",
                        "Properties": {
                            "DeadLetteringOnMessageExpiration": False,
                            "DefaultMessageTimeToLive": "PT1H",
                            "DuplicateDetectionHistoryTimeWindow": "PT20S",
                            "ForwardDeadLetteredMessagesTo": "",
                            "ForwardTo": "",
                            "LockDuration": "PT1M",
                            "MaxDeliveryCount": 3,
                            "RequiresDuplicateDetection": True,
                            "RequiresSession": False,
                        },
                    }
                ],
                "Topics": [
                    {
                        "Name": "prices",
                        "Properties": {
                            "DefaultMessageTimeToLive": "PT30M",
                            "DuplicateDetectionHistoryTimeWindow": "PT5M",
                            "RequiresDuplicateDetection": True,
                        },
                        "Subscriptions": [
                            {
                                "Name": "by-system",
                                "Properties": {
                                    "DeadLetteringOnMessageExpiration": True,
                                    "DefaultMessageTimeToLive": "PT1H",
                                    "LockDuration": "PT2M",
                                    "MaxDeliveryCount": 5,
                                    "ForwardDeadLetteredMessagesTo": "orders",
                                    "ForwardTo": "",
                                    "RequiresSession": False,
                                },
                                "Rules": [
                                    {
                                        "Name": "all-of-it",
                                        "Properties": {
                                            "FilterType": "Correlation",
                                            "CorrelationFilter": {
                                                "ContentType": "application/json",
                                                "CorrelationId": "c",
                                                "Label": "subject",
                                                "MessageId": "m",
                                                "ReplyTo": "answers",
                                                "ReplyToSessionId": "rs",
                                                "SessionId": "s",
                                                "To": "me",
                                            },
                                        },
                                    }
                                ],
                            },
                            {
                                "Name": "by-own",
                                "Rules": [
                                    {
                                        "Name": "red",
                                        "Properties": {
                                            "FilterType": "Correlation",
                                            "CorrelationFilter": {"Label": "", "Properties": {"Colour": "red", "n": 5}},
                                        },
                                    },
                                    {
                                        "Name": "high",
                                        "Properties": {
                                            "FilterType": "Sql",
                                            "SqlFilter": {"SqlExpression": "price > 100 AND sys.To = 'x'"},
                                            "Action": {"SqlExpression": "SET urgent = true"},
                                        },
                                    },
                                ],
                            },
                            {"Name": "everything", "Rules": []},
                        ],
                    }
                ],
            }
        ],
        "Logging": {"Type": "File,Console"},
    }
}


def sample() -> dict[str, Any]:
    """Return a copy of the sample that a test may change."""
    return copy.deepcopy(SAMPLE)


def namespace_of(config: dict[str, Any]) -> dict[str, Any]:
    """Return the namespace in a configuration."""
    found: dict[str, Any] = config["UserConfig"]["Namespaces"][0]
    return found


def config_of(**namespace: Any) -> dict[str, Any]:
    """Return a configuration whose namespace has these members."""
    return {"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", **namespace}], "Logging": {"Type": "File"}}}
