"""Violations of a namespace's rules, over the Resource Manager. The cases are those of the Atom feed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.protocols.arm.resource_requests import Manager
from tests.protocols.atom.rule_cases import CASES, IDS, Case
from tests.protocols.http.http_front import Front, scenario

PATHS = {"Queue": "/queues/thing", "Topic": "/topics/thing", "Subscription": "/topics/news/subscriptions/thing"}


def camel(given: dict[str, str | int | bool]) -> dict[str, object]:
    return {name[0].lower() + name[1:]: value for name, value in given.items()}


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_violation_is_rejected_with_the_services_text(tmp_path: Path, case: Case) -> None:
    async def play(front: Front) -> None:
        manager, path = Manager(front), PATHS[case.kind]
        if case.kind == "Subscription":
            await front.topic("news")
        if case.before is not None:
            before = await manager.put(path, **camel(dict(case.before)))
        status, code, message = await manager.refused("PUT", path, {"properties": camel(dict(case.given))})
        assert (status, code) == (400, "BadRequest")
        assert case.text in message
        if case.before is None:
            assert (await manager.ask("GET", path)).status == 404
        else:
            after = await manager.get(path)
            names = camel(dict(case.given))
            assert {name: after["properties"][name] for name in names} == {
                name: before["properties"][name] for name in names
            }

    scenario(tmp_path, play, tier=case.tier, pipeline=False)
