"""Requests that no page of the portal makes: other sites, other names, other forms."""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path

import pytest

from oncebus.model.entities import Queue
from oncebus.protocols.portal.links import BASE, link
from tests.protocols.http.http_front import ROOT

from .conftest import Shared
from .visitor import CHANGES, FILLED, HERE, LOOKS, Visitor, is_untouched, visit, visiting, words


@pytest.mark.parametrize("seal", ["", "0" * 64, "ü", "other"])
@pytest.mark.parametrize("page", CHANGES)
def test_a_form_without_the_seal_of_its_session_does_nothing(shared: Shared, page: str, seal: str) -> None:
    async def play(visitor: Visitor) -> None:
        given = seal
        if seal == "other":
            async with visiting(visitor.front) as other:
                await other.sign_in()
                given = other.seal
        answer = await visitor.post(page, FILLED, seal=given)
        assert answer.status_code == 403
        assert "The form does not belong to this session." in words(answer)
        assert await is_untouched(visitor)

    shared(play)


def test_signing_in_and_out_needs_a_seal_too(shared: Shared) -> None:
    async def play(visitor: Visitor) -> None:
        assert (await visitor.post("sign-out", seal="0" * 64)).status_code == 403
        assert (await visitor.get()).status_code == 200
        async with visiting(visitor.front) as other:
            fields = {"rule": ROOT.name, "key": "root-one"}
            assert (await other.post("sign-in", fields, seal=visitor.seal)).status_code == 403

    shared(play)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example.org"},
        {"origin": f"http://{HERE}.evil.example.org"},
        {"origin": "http://localhost:5301"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_a_form_from_another_site_does_nothing(shared: Shared, headers: dict[str, str]) -> None:
    async def play(visitor: Visitor) -> None:
        answer = await visitor.post("create", {"kind": "queue", "name": "made"}, headers=headers)
        assert (answer.status_code, "The form was sent from another site." in words(answer)) == (403, True)
        assert await is_untouched(visitor)
        # Here the host name is wrong.
        ours = {"origin": f"http://{HERE}", "sec-fetch-site": "same-origin"}
        assert (await visitor.post("create", {"kind": "queue", "name": "%"}, headers=ours)).status_code == 400

    shared(play)


@pytest.mark.parametrize(
    ("host", "is_known"),
    [
        ("localhost", True),
        ("LOCALHOST.:5300", True),
        ("bus.localhost", True),
        ("127.0.0.1:5300", True),
        ("[::1]:5300", True),
        ("192.168.7.9", True),
        ("bus.example.org:5300", True),
        ("evil.example.org", False),
        ("localhost.evil.example.org", False),
        ("127.0.0.1.evil.example.org", False),
        ("", False),
        ("localhost:5300@evil", False),
        ("localhost, evil", False),
    ],
)
def test_the_portal_answers_only_to_names_it_has(shared: Shared, host: str, is_known: bool) -> None:
    async def play(visitor: Visitor) -> None:
        for page in ("sign-in", "static/portal.js"):
            answer = await visitor.client.get(link(page), headers={"host": host})
            assert answer.status_code == (200 if is_known else 421)
            assert ("does not answer to the name" in words(answer)) == (not is_known)

    shared(play, rule=None)


def test_every_response_has_the_security_headers(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.front.queue()
        answers = [
            await visitor.get(page, path="orders", kind="queue") for page in (*LOOKS, "nothing", "static/portal.js")
        ]
        answers.append(await visitor.post("create", {"kind": "queue", "name": "a"}))
        answers.append(await visitor.client.get(BASE, headers={"host": "evil"}))
        for answer in answers:
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert answer.headers["x-frame-options"] == "DENY"
            assert answer.headers["x-content-type-options"] == "nosniff"
            is_static = "javascript" in answer.headers.get("content-type", "")
            assert answer.headers["cache-control"] == (
                "public, max-age=31536000, immutable" if is_static else "no-store"
            )
            assert "<script>" not in answer.text
            assert " style=" not in answer.text
            assert " onclick" not in answer.text

    visit(tmp_path, play)


@pytest.mark.parametrize(
    ("headers", "query", "status"),
    [
        ({"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}, "", 303),
        ({"accept": "*/*"}, "", 200),
        ({"accept": "application/xml"}, "", 200),
        ({"accept": "text/html"}, "?api-version=2021-05", 200),
        ({"accept": "text/html", "authorization": "SharedAccessSignature x"}, "", 200),
    ],
)
def test_only_browsers_are_sent_from_the_root_to_the_portal(
    shared: Shared, headers: dict[str, str], query: str, status: int
) -> None:
    async def play(visitor: Visitor) -> None:
        answer = await visitor.client.get(f"/{query}", headers=headers)
        assert answer.status_code == status
        if status == 303:
            assert answer.headers["location"] == BASE
        else:
            assert answer.headers["content-type"].startswith("application/atom+xml")
        posted = await visitor.client.post("/", headers={"accept": "text/html"})
        assert posted.status_code == 401

    shared(play, rule=None)


@pytest.mark.parametrize("path", ["/$portal", "/%24portal/", "/$PORTAL/entity", "/%24Portal"])
def test_other_ways_to_write_its_path_lead_to_the_portal(shared: Shared, path: str) -> None:
    async def play(visitor: Visitor) -> None:
        answer = await visitor.client.get(path)
        assert (answer.status_code, answer.headers["location"]) == (303, BASE)
        assert (await visitor.client.get("/$portals/x")).status_code == 401

    shared(play, rule=None)


def test_a_body_that_is_no_form_is_rejected(shared: Shared) -> None:
    async def play(visitor: Visitor) -> None:
        url, kind = link("create"), "application/x-www-form-urlencoded"
        for body, content_type, status in (
            (b"seal=x", "application/json", 415),
            (b"seal=x", "multipart/form-data; boundary=x", 415),
            (b"seal=%ff", kind, 400),
            (b"\xff", kind, 400),
            (b"a=b&" * 2000, kind, 400),
            (b"a" * ((1 << 20) + 1), kind, 413),
        ):
            answer = await visitor.client.post(url, content=body, headers={"content-type": content_type})
            assert answer.status_code == status, body[:20]

    shared(play)


def test_other_methods_and_unknown_pages_are_refused(shared: Shared) -> None:
    async def play(visitor: Visitor) -> None:
        for method, page, status in (
            ("PUT", "create", 405),
            ("DELETE", "entity", 405),
            ("GET", "entity/resubmit", 405),
            ("POST", "", 405),
            ("GET", "sign-out", 405),
            ("PUT", "sign-in", 405),
            ("GET", "nothing", 404),
            ("GET", "static/portal.py", 404),
            ("GET", "static/../portal.py", 404),
            ("GET", "entity", 404),
            ("GET", "entity/messages?path=orders&of=x", 400),
            ("HEAD", "", 200),
        ):
            answer = await visitor.client.request(method, f"{BASE}{page}", headers={"origin": f"http://{HERE}"})
            assert answer.status_code == status, (method, page)

    shared(play)


def test_an_internal_error_reveals_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: object) -> Awaitable[object]:
        raise RuntimeError("/secret/place is broken")

    async def play(visitor: Visitor) -> None:
        await visitor.front.queue()
        visitor.front.broker.counts = fail  # type: ignore[assignment]
        answer = await visitor.get("entity", path="orders")
        assert (answer.status_code, "secret" in answer.text) == (500, False)
        assert "secret" in caplog.text

    visit(tmp_path, play)


def test_a_queue_may_have_any_name(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        for name in ("...", "a/b/.c", "portal", "sign-in", "x~y"):
            await visitor.front.broker.change(
                lambda catalogue, now, name=name: catalogue.create(Queue(name=name), now)  # type: ignore[misc]
            )
            page = await visitor.get("entity", path=name)
            assert page.status_code == 200
            assert f"<h1>{name} " in page.text

    visit(tmp_path, play)


def test_a_stopping_broker_asks_to_retry_later(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.front.queue()
        visitor.front.core.store._is_closed = True
        answer = await visitor.get("entity", path="orders")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")
        assert "The server is shutting down." in words(answer)
        assert (await visitor.get("entity/live", path="orders")).status_code == 503

    visit(tmp_path, play, pipeline=False)


def test_a_wrong_method_gets_the_allowed_ones(shared: Shared) -> None:
    async def play(visitor: Visitor) -> None:
        answer = await visitor.client.request("PUT", link("create"))
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, POST")

    shared(play)
