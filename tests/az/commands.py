"""Commands of az that cover each of `az servicebus` and `az deployment group`, in an order in which they can run.

Each line says what must come of it: a part of the answer, or the text of the error. An error is a feature that a broker
of one namespace does not have; docs/guides/az.md says why.
"""

from __future__ import annotations

from typing import Any, NamedTuple

NS = "-g any --namespace-name oncebus"
N = "-g any --name oncebus"
SUBNET = "--subnet id=/subscriptions/s/resourceGroups/g/x/y ignore-missing-endpoint=true"
REPLICA = "--geo-data-replication-config role-type=Secondary location-name=there"
ID = (
    "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/any/providers/Microsoft.ServiceBus"
    "/namespaces/oncebus"
)


class Command(NamedTuple):
    """A command line behind `az`. `has` is a part of its answer, `refused` a part of its error."""

    line: str
    has: Any = None
    refused: str | None = None


def _rules(owner: str, place: str) -> list[Command]:
    rule = f"servicebus {owner} authorization-rule"
    one = f"{place} --name app"
    return [
        Command(f"{rule} create {one} --rights Send Listen", {"name": "app", "rights": ["Send", "Listen"]}),
        Command(f"{rule} update {one} --rights Listen", {"rights": ["Listen"]}),
        Command(f"{rule} show {one}", {"name": "app", "rights": ["Listen"]}),
        Command(f"{rule} keys list {one}", {"keyName": "app"}),
        Command(
            f"{rule} keys renew {one} --key PrimaryKey --key-value 0123456789abcdef0123",
            {"primaryKey": "0123456789abcdef0123"},
        ),
        Command(f"{rule} list {place}", ["app"]),
        Command(f"{rule} delete {one}"),
        Command(f"{rule} show {one}", refused="could not be found"),
    ]


_NAMESPACE = [
    Command("servicebus namespace exists --name oncebus", {"nameAvailable": False}),
    Command(f"servicebus namespace show {N}", {"name": "oncebus", "provisioningState": "Succeeded"}),
    Command("servicebus namespace list", ["oncebus"]),
    Command("servicebus namespace list -g any", ["oncebus"]),
    Command(
        f"servicebus namespace create {N} --sku Premium --tags team=orders",
        {"name": "oncebus", "tags": {"team": "orders"}},
    ),
    Command(
        f"servicebus namespace update {N} --sku Standard", {"sku": {"name": "Standard"}, "tags": {"team": "orders"}}
    ),
    Command(f"servicebus namespace update {N} --tags a=b", {"tags": {"a": "b"}}),
    Command(f"servicebus namespace wait {N} --created"),
    *_rules("namespace", NS),
    Command(f"servicebus namespace delete {N}", refused="cannot be deleted"),
    Command(f"servicebus namespace failover {NS} --primary-location here", refused="not supported"),
    Command(f"servicebus namespace identity assign {NS} --system-assigned", refused="not supported"),
    Command(f"servicebus namespace identity remove {NS} --system-assigned", refused="'identity'"),
    Command(
        f"servicebus namespace encryption add {NS} --encryption-config key-name=k key-vault-uri=https://v.example.org",
        refused="not supported",
    ),
    Command(
        f"servicebus namespace encryption remove {NS} --encryption-config key-name=k key-vault-uri=https://v.example.org",
        refused="'encryption'",
    ),
    Command(
        f"servicebus namespace replica add {NS} {REPLICA}",
        refused="not supported",
    ),
    Command(
        f"servicebus namespace replica remove {NS} {REPLICA}",
        refused="'geoDataReplication'",
    ),
    Command(f"servicebus namespace network-rule-set show {N}", {"name": "default", "defaultAction": "Allow"}),
    Command(f"servicebus namespace network-rule-set list {NS}", ["default"]),
    Command(f"servicebus namespace network-rule-set create {N} --default-action Allow", {"defaultAction": "Allow"}),
    Command(f"servicebus namespace network-rule-set update {N} --default-action Deny", refused="not supported"),
    Command(
        f"servicebus namespace network-rule-set ip-rule add {N} --ip-rule ip-address=10.0.0.1 action=Allow",
        refused="not supported",
    ),
    Command(
        f"servicebus namespace network-rule-set ip-rule remove {N} --ip-rule ip-address=10.0.0.1", {"name": "default"}
    ),
    Command(
        f"servicebus namespace network-rule-set virtual-network-rule add {N} {SUBNET}",
        refused="not supported",
    ),
    Command(
        f"servicebus namespace network-rule-set virtual-network-rule remove {N} {SUBNET}",
        {"name": "default"},
    ),
    Command(f"servicebus namespace private-link-resource show {NS}", {"value": []}),
    Command(f"servicebus namespace private-endpoint-connection list {NS}", []),
    Command(f"servicebus namespace private-endpoint-connection show {NS} --name x", refused="could not be found"),
    Command(
        f"servicebus namespace private-endpoint-connection create {NS} --name x --provisioning-state Succeeded",
        refused="not supported",
    ),
    Command(
        f"servicebus namespace private-endpoint-connection update {NS} --name x --provisioning-state Succeeded",
        refused="could not be found",
    ),
    Command(f"servicebus namespace private-endpoint-connection approve {NS} --name x", refused="could not be found"),
    Command(f"servicebus namespace private-endpoint-connection reject {NS} --name x", refused="could not be found"),
    Command(f"servicebus namespace private-endpoint-connection wait {NS} --name x --deleted"),
    Command(f"servicebus namespace private-endpoint-connection delete {NS} --name x --yes"),
]

_QUEUE = [
    Command(
        f"servicebus queue create {NS} --name orders --enable-duplicate-detection true"
        " --duplicate-detection-history-time-window PT1H",
        {"requiresDuplicateDetection": True, "duplicateDetectionHistoryTimeWindow": "PT1H"},
    ),
    Command(f"servicebus queue update {NS} --name orders --max-delivery-count 5", {"maxDeliveryCount": 5}),
    Command(f"servicebus queue show {NS} --name orders", {"name": "orders", "maxDeliveryCount": 5}),
    Command(f"servicebus queue list {NS}", ["orders"]),
    *_rules("queue", f"{NS} --queue-name orders"),
    Command(f"servicebus queue delete {NS} --name orders"),
    Command(f"servicebus queue show {NS} --name orders", refused="could not be found"),
]

_T = f"{NS} --topic-name prices"
_S = f"{_T} --subscription-name all"
_TOPIC = [
    Command(f"servicebus topic create {NS} --name prices --enable-duplicate-detection true", {"name": "prices"}),
    Command(f"servicebus topic update {NS} --name prices --max-size 2048", {"maxSizeInMegabytes": 2048}),
    Command(f"servicebus topic show {NS} --name prices", {"requiresDuplicateDetection": True}),
    Command(f"servicebus topic list {NS}", ["prices"]),
    *_rules("topic", _T),
    Command(f"servicebus topic subscription create {_T} --name all --max-delivery-count 3", {"maxDeliveryCount": 3}),
    Command(f"servicebus topic subscription update {_T} --name all --lock-duration PT2M", {"lockDuration": "PT2M"}),
    Command(f"servicebus topic subscription show {_T} --name all", {"name": "all", "maxDeliveryCount": 3}),
    Command(f"servicebus topic subscription list {_T}", ["all"]),
    Command(
        f"servicebus topic subscription rule create {_S} --name big --filter-sql-expression size>5",
        {"sqlFilter": {"sqlExpression": "size>5"}},
    ),
    Command(
        f"servicebus topic subscription rule update {_S} --name big --filter-sql-expression size>7",
        {"sqlFilter": {"sqlExpression": "size>7"}},
    ),
    Command(f"servicebus topic subscription rule show {_S} --name big", {"name": "big"}),
    Command(f"servicebus topic subscription rule list {_S}", ["$Default", "big"]),
    Command(f"servicebus topic subscription rule delete {_S} --name big"),
    Command(f"servicebus topic subscription delete {_T} --name all"),
    Command(f"servicebus topic delete {NS} --name prices"),
]

_RECOVERY = [
    Command(f"servicebus georecovery-alias exists {NS} --alias pair", {"nameAvailable": True}),
    Command(f"servicebus georecovery-alias list {NS}", []),
    Command(f"servicebus georecovery-alias show {NS} --alias pair", refused="could not be found"),
    Command(f"servicebus georecovery-alias set {NS} --alias pair --partner-namespace other", refused="not supported"),
    Command(f"servicebus georecovery-alias create {NS} --alias pair --partner-namespace other", refused=""),
    Command(f"servicebus georecovery-alias break-pair {NS} --alias pair", refused="could not be found"),
    Command(f"servicebus georecovery-alias fail-over {NS} --alias pair", refused="could not be found"),
    Command(f"servicebus georecovery-alias delete {NS} --alias pair"),
    Command(f"servicebus georecovery-alias authorization-rule list {NS} --alias pair", refused="could not be found"),
    Command(
        f"servicebus georecovery-alias authorization-rule show {NS} --alias pair --name app",
        refused="could not be found",
    ),
    Command(
        f"servicebus georecovery-alias authorization-rule keys list {NS} --alias pair --name app",
        refused="could not be found",
    ),
    Command(
        f"servicebus migration start {N} --target-namespace {ID}2 --post-migration-name other", refused="not supported"
    ),
    Command(f"servicebus migration show {N}", refused="could not be found"),
    Command(f"servicebus migration list {N}", []),
    Command(f"servicebus migration complete {N}", refused="could not be found"),
    Command(f"servicebus migration abort {N}", refused="could not be found"),
    Command(f"servicebus migration wait {N} --deleted"),
    Command(f"servicebus migration delete {N}"),
]

_D = "-g any --name one"
_DEPLOYMENT = [
    Command(
        f"deployment group validate {_D} --template-file TEMPLATE", {"properties": {"provisioningState": "Succeeded"}}
    ),
    Command(f"deployment group what-if {_D} --template-file TEMPLATE --no-pretty-print", {"status": "Succeeded"}),
    Command(
        f"deployment group create {_D} --template-file TEMPLATE --parameters window=PT1H",
        {"properties": {"provisioningState": "Succeeded", "outputs": {"window": {"value": "PT1H"}}}},
    ),
    Command(f"deployment group show {_D}", {"name": "one", "properties": {"provisioningState": "Succeeded"}}),
    Command("deployment group list -g any", ["one"]),
    Command(f"deployment group export {_D}", {"contentVersion": "1.0.0.0"}),
    Command(f"deployment group wait {_D} --created"),
    Command(f"deployment operation group list {_D}", {"properties": {"provisioningState": "Succeeded"}}),
    Command(
        f"deployment operation group show {_D} --operation-ids 1", {"properties": {"provisioningState": "Succeeded"}}
    ),
    Command(f"deployment group cancel {_D}", refused="cannot be cancelled"),
    Command(f"deployment group delete {_D}"),
    Command(f"deployment group show {_D}", refused="could not be found"),
]

COMMANDS = [*_NAMESPACE, *_QUEUE, *_TOPIC, *_RECOVERY, *_DEPLOYMENT]
