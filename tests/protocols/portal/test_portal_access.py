"""The rights of a key in the portal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oncebus.model.access import AuthorizationRule, Right
from oncebus.protocols.portal.links import link
from tests.protocols.http.http_front import LISTENER, ROOT, SENDER

from .conftest import Shared
from .visitor import CHANGES, FIGURES, FILLED, LOOKS, Visitor, is_untouched, visit, words

OWN = AuthorizationRule("own", frozenset({Right.MANAGE}), "own-one", "own-two")
OWN_LISTENER = AuthorizationRule("own-listener", frozenset({Right.LISTEN}), "ear-one", "ear-two")
GETS = {
    "": (True, True, True),
    "live": (True, False, False),
    "search": (True, False, False),
    "duplicates": (True, False, False),
    "pipeline": (True, False, False),
    "create": (True, False, False),
    "entity": (True, True, True),
    "entity/live": (True, False, False),
    "entity/change": (True, False, False),
    "entity/detection": (True, False, False),
    "entity/delete": (True, False, False),
    "entity/duplicates": (True, True, False),
    "entity/messages": (True, True, False),
    "entity/send": (True, False, True),
    "quarantine": (True, False, False),
    "policies": (True, False, False),
}
POSTS = {
    "policies/renew": (True, False, False),
    "policies/delete": (True, False, False),
    "create": (True, False, False),
    "entity/change": (True, False, False),
    "entity/detection": (True, False, False),
    "entity/delete": (True, False, False),
    "entity/forget": (True, False, False),
    "entity/purge": (True, False, False),
    "entity/resubmit": (True, False, False),
    "entity/discard": (True, True, False),
    "entity/download": (True, True, False),
    "entity/send": (True, False, True),
    "quarantine": (True, False, False),
    "policies": (True, False, False),
}


def test_a_visitor_who_is_not_signed_in_sees_nothing(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.front.queue()
        for name in LOOKS:
            answer = await visitor.get(name, path="orders")
            if name in FIGURES:
                assert (answer.status_code, answer.json()) == (401, {"error": "Not signed in."})
            else:
                assert answer.status_code == 303
                assert answer.headers["location"].startswith(link("sign-in"))
            assert "orders" not in answer.text
        unknown = await visitor.get("no/such/page")
        assert unknown.headers["location"].startswith(link("sign-in"))
        page = await visitor.get("sign-in")
        assert re.search(r'<input id="connection-string"[^>]* autofocus', page.text)
        assert "Standard" not in page.text

    visit(tmp_path, play, rule=None)


def test_a_visitor_who_is_not_signed_in_changes_nothing(shared: Shared) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.get("sign-in")
        for name in CHANGES:
            answer = await visitor.post(name, FILLED)
            assert (answer.status_code, answer.headers["location"]) == (303, link("sign-in"))
        assert await is_untouched(visitor)

    shared(play, rule=None)


@pytest.mark.parametrize(("rule", "column"), [(ROOT, 0), (LISTENER, 1), (SENDER, 2)])
def test_each_page_needs_its_right(tmp_path: Path, rule: AuthorizationRule, column: int) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.front.queue()
        for page, permitted in GETS.items():
            answer = await visitor.get(page, path="orders", kind="queue", message_id="x" if page == "search" else None)
            assert (answer.status_code == 200) == permitted[column], page
            if not permitted[column]:
                assert answer.status_code == 403
                assert "The key you signed in with does not permit this." in answer.text
        fields = {**FILLED, "action": "release", "confirm": "not the name"}
        for page, permitted in POSTS.items():
            answer = await visitor.post(page, fields)
            assert (answer.status_code != 403) == permitted[column], page

    visit(tmp_path, play, rule=rule)


def test_without_the_right_to_list_an_entity_opens_by_its_path(shared: Shared) -> None:
    async def play(visitor: Visitor) -> None:
        page = await visitor.get()
        assert "does not permit listing queues and topics" in words(page)
        assert "orders" not in page.text
        page = await visitor.get("entity", path="orders")
        assert "You need Manage" in words(page)
        assert "Messages Dead letters Duplicates" in words(page)
        assert "data-value" not in page.text
        assert "Delete" not in words(page)

    shared(play, rule=LISTENER)


def test_a_key_of_an_entity_opens_that_entity_and_no_other(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.front.queue("orders", authorization_rules=(OWN, OWN_LISTENER))
        await visitor.front.queue("other")
        await visitor.sign_in(OWN, entity="orders")
        overview = await visitor.get()
        assert link("entity", path="orders") in overview.text
        assert "other" not in overview.text
        assert (await visitor.get("entity", path="orders")).status_code == 200
        assert (await visitor.get("entity/change", path="ORDERS")).status_code == 200
        for page in ("entity", "entity/live", "entity/duplicates", "entity/messages", "entity/change"):
            assert (await visitor.get(page, path="other")).status_code == 403
        assert (await visitor.get("quarantine")).status_code == 403
        assert (await visitor.post("create", {"kind": "queue", "name": "more"})).status_code == 403
        # Forwarding needs Manage on the target as well.
        fields = {"path": "orders", "version": str(visitor.front.broker.catalogue.queue("orders").updated_at)}
        answer = await visitor.post("entity/change", {**fields, "forward_to": "other"})
        assert answer.status_code == 403
        assert visitor.front.broker.catalogue.queue("orders").forward_to is None

    visit(tmp_path, play, rule=None)


def test_a_key_of_an_entity_with_listen_alone_sees_its_drops(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.front.queue("orders", authorization_rules=(OWN_LISTENER,))
        await visitor.sign_in(OWN_LISTENER, entity="orders")
        assert (await visitor.get("entity/duplicates", path="orders")).status_code == 200
        assert (await visitor.get("entity/change", path="orders")).status_code == 403

    visit(tmp_path, play, rule=None)
