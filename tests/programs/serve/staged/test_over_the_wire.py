"""Tests unusual ids in paths, and requests without a valid token, over a real socket."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest

from oncebus.broker.clock import wall_time
from oncebus.model.access import make_token
from oncebus.values.durations import HOUR
from tests.programs.serve.stage import PATIENCE, Stage

ODD_IDS = ["12345.2017/Payment", "a b", "ödeme", "日本\u3000語", "%2F", "..", "a?b#c&d=e+f", "😀" * 64]
GUID = "00000000-0000-0000-0000-000000000001"


def test_ids_with_slashes_spaces_and_other_alphabets_work_in_every_path(stage: Stage) -> None:
    stage.queue("odd/queue", requires_duplicate_detection=True, max_delivery_count=2)
    stage.topic("odd/topic", requires_duplicate_detection=True)
    subscription = stage.subscription("odd/topic", "all")
    client = stage.client
    for entity in ("odd/queue", "odd/topic"):
        for identity in ODD_IDS:
            for _ in range(2):
                assert client.send(entity, identity, "x") == 201
        for identity in ODD_IDS:
            _, _, text = client.request("GET", f"/{entity}/$duplicates?message-id={quote(identity, safe='')}")
            assert [drop["messageId"] for drop in json.loads(text)["duplicates"]] == [identity]

    def settle(path: str, identity: str, *methods: str) -> None:
        status, headers, _ = client.request("POST", f"/{path}/messages/head?timeout={PATIENCE / 2}")
        assert status == 201
        properties = json.loads(headers["brokerproperties"])
        assert properties["MessageId"] == identity
        for method in methods:
            at = f"/{path}/messages/{quote(identity, safe='')}/{properties['LockToken']}"
            assert client.request(method, at)[0] == 200, (path, identity, method)

    for identity in ODD_IDS:
        settle("odd/queue", identity, "POST", "PUT")
        settle("odd%2Fqueue", identity, "PUT")
        settle("odd/queue/$DeadLetterQueue", identity, "POST", "DELETE")
        settle(subscription, identity, "POST", "DELETE")
    assert client.receive("odd/queue", 0) is None
    assert client.receive(subscription, 0) is None


@pytest.mark.parametrize("key", ["", "c2VjcmV0", None])
def test_without_a_valid_token_only_health_is_answered(stage: Stage, key: str | None) -> None:
    stage.queue(f"closed-{key}")
    path = f"/closed-{key}"
    headers: dict[str, str] = {}
    if key is not None:
        headers["Authorization"] = make_token(stage.client.url, "RootManageSharedAccessKey", key, wall_time() + HOUR)
    answers = set()
    for method in ("GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS"):
        for target in (
            path,
            f"{path}/messages",
            f"{path}/messages/head",
            f"{path}/messages/1/{GUID}",
            f"{path}/$duplicates",
            "/$quarantine",
            "/metrics",
            "/$Resources/queues",
            "/no-such-queue/messages",
            "/health/",
            "/subscriptions/1/resourceGroups/2",
        ):
            status, _, text = stage.client.request(method, target, "x", headers, signed=False)
            answers.add((status, "" if method == "HEAD" else text))
    assert {status for status, _ in answers} == {401}
    assert len({text for _, text in answers if text}) == 1
    assert stage.client.request("GET", "/health", headers=headers, signed=False)[0] == 200
    assert stage.client.request("GET", f"{path}/$duplicates")[0] == 200
