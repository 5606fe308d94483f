"""Signing in, and the lifetime of sessions."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from oncebus.model.access import WhichKey, connection_string
from oncebus.protocols.portal.links import BASE, link
from oncebus.protocols.portal.sessions import FAILURES, FAILURES_WITHIN, IDLE, LONGEST, PortalSessions
from oncebus.values.durations import SECOND
from tests.protocols.http.http_front import LISTENER, NAMESPACE, ROOT, SENDER

from .conftest import Shared
from .visitor import LOOKS, Visitor, visit, visiting, words


def seconds(microseconds: int) -> float:
    return microseconds / SECOND


@pytest.mark.parametrize(
    "fields",
    [
        {"connection-string": connection_string("elsewhere", 5672, ROOT, emulator=True)},
        {"connection-string": connection_string("x", None, ROOT, False, which=WhichKey.SECONDARY)},
        {"connection-string": f" endpoint=sb://x/ ; sharedaccesskey=root-one;SHAREDACCESSKEYNAME={ROOT.name};"},
        {"connection-string": connection_string("x", None, ROOT, False, entity="orders")},
        {"rule": ROOT.name, "key": "root-one"},
        {"rule": f" {ROOT.name} ", "key": "root-two", "entity": "orders"},
    ],
)
def test_a_connection_string_or_a_key_signs_in(shared: Shared, fields: dict[str, str]) -> None:
    async def play(visitor: Visitor) -> None:
        page = await visitor.follow(await visitor.try_to_sign_in(fields))
        assert "orders" in page.text
        assert ROOT.name in page.text

    shared(play, rule=None)


@pytest.mark.parametrize(
    ("fields", "status", "expected"),
    [
        ({"rule": ROOT.name, "key": "wrong-key"}, 403, "No rule with this name has this key."),
        ({"rule": "nobody", "key": "wrong-key"}, 403, "No rule with this name has this key."),
        ({"rule": "a" * 9000, "key": "wrong-key"}, 403, "No rule with this name has this key."),
        ({"rule": ROOT.name, "key": "wrong-key", "entity": "orders"}, 403, "No rule with this name has this key."),
        ({"rule": ROOT.name, "key": "wrong-key", "entity": "../.."}, 403, "No rule with this name has this key."),
        ({"rule": ROOT.name, "key": "wrong-ü\U0001f600"}, 403, "No rule with this name has this key."),
        ({}, 400, "Enter a connection string, or the name of a rule and its key."),
        ({"rule": ROOT.name}, 400, "Enter a connection string, or the name of a rule and its key."),
        ({"connection-string": "wrong-key"}, 400, "The connection string has no SharedAccessKeyName."),
        ({"connection-string": "SharedAccessKeyName=wrong-key"}, 400, "The connection string has no SharedAccessKey."),
        ({"connection-string": "wrong-key" * 1000}, 400, "The connection string is too long."),
    ],
)
def test_a_wrong_key_is_rejected_and_not_shown(
    shared: Shared, fields: dict[str, str], status: int, expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def play(visitor: Visitor) -> None:
        answer = await visitor.try_to_sign_in(fields)
        assert (answer.status_code, expected in words(answer)) == (status, True)
        assert "wrong-key" not in answer.text
        assert (await visitor.get()).status_code == 303
        assert "wrong-" not in caplog.text

    shared(play, rule=None)


def test_too_many_failures_mean_waiting_unless_the_key_is_right(tmp_path: Path) -> None:
    """Behind a proxy all visitors share one address: one visitor's wrong keys must not lock out another's right key."""

    async def play(visitor: Visitor) -> None:
        right, wrong = {"rule": ROOT.name, "key": "root-one"}, {"rule": ROOT.name, "key": "wrong"}
        for _ in range(FAILURES):
            assert (await visitor.try_to_sign_in(wrong)).status_code == 403
        answer = await visitor.try_to_sign_in(wrong)
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "300")
        assert "Too many attempts failed. Try again in 300 seconds." in words(answer)
        async with visiting(visitor.front, address="10.0.0.2") as other:
            assert (await other.try_to_sign_in(wrong)).status_code == 403
        visitor.front.time.advance(seconds(FAILURES_WITHIN))
        assert (await visitor.try_to_sign_in(wrong)).status_code == 403
        for _ in range(FAILURES):
            await visitor.try_to_sign_in(wrong)
        assert (await visitor.try_to_sign_in(wrong)).status_code == 429
        assert (await visitor.try_to_sign_in(right)).status_code == 303

    visit(tmp_path, play, rule=None)


def test_forms_that_do_not_arrive_keep_nobody_from_signing_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The portal does not wait long for clients that announce a form and do not send it, and refuses nobody else."""
    monkeypatch.setattr("oncebus.protocols.portal.portal._SIGN_IN_SECONDS", 0.2)

    async def play(visitor: Visitor) -> None:
        headers = {"Content-Type": "application/x-www-form-urlencoded"}

        async def half() -> int:
            path = "/$portal/sign-in"
            return (await visitor.front.ask("POST", path, b"seal=", headers, token=None, stalls=True)).status

        halves = [asyncio.create_task(half()) for _ in range(60)]
        await asyncio.sleep(0)
        assert (await visitor.try_to_sign_in({"rule": ROOT.name, "key": "root-one"})).status_code == 303
        assert set(await asyncio.gather(*halves)) == {408}

    visit(tmp_path, play, rule=None, names=["bus.example.org"])


def test_failures_of_ipv6_count_by_network(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        for number in range(FAILURES):
            async with visiting(visitor.front, address=f"2001:db8::{number + 1:x}") as one:
                await one.try_to_sign_in({"rule": "x", "key": "wrong"})
        for address, status in (("2001:db8::ffff", 429), ("2001:db8:0:1::1", 403)):
            async with visiting(visitor.front, address=address) as one:
                assert (await one.try_to_sign_in({"rule": "x", "key": "wrong"})).status_code == status

    visit(tmp_path, play, rule=None)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_cookies_are_for_the_portal_only_and_no_script_sees_them(shared: Shared, scheme: str) -> None:
    async def play(visitor: Visitor) -> None:
        async with visiting(visitor.front, scheme=scheme) as one:
            answer = await one.try_to_sign_in({"rule": ROOT.name, "key": "root-one"})
            cookies = answer.headers.get_list("set-cookie")
            [session] = [cookie for cookie in cookies if "session" in cookie]
            name, _, rest = session.partition("=")
            assert name == ("__Secure-oncebus-session-5300" if scheme == "https" else "oncebus-session-5300")
            flags = {flag.strip().lower() for flag in rest.split(";")[1:]}
            assert flags == {"httponly", "samesite=strict", f"path={BASE}"} | (
                {"secure"} if scheme == "https" else set()
            )
            assert all("HttpOnly" in cookie and "SameSite=strict" in cookie for cookie in cookies)

    shared(play, rule=None)


def test_signing_in_begins_a_new_session_and_ends_the_previous_one(shared: Shared) -> None:
    async def play(visitor: Visitor) -> None:
        [before] = [cookie.value for cookie in visitor.client.cookies.jar if "session" in cookie.name]
        seal = visitor.seal
        async with visiting(visitor.front) as other:
            other.client.cookies.update(visitor.client.cookies)
            await other.client.get(link("sign-in"))
        await visitor.post("sign-out")
        await visitor.sign_in()
        [after] = [cookie.value for cookie in visitor.client.cookies.jar if "session" in cookie.name]
        assert before != after
        assert seal != visitor.seal
        assert before is not None
        assert len(before) > 40
        stale = await visitor.client.get(BASE, headers={"cookie": f"oncebus-session-5300={before}"})
        assert stale.status_code == 303

    shared(play)


def test_signing_out_ends_the_session(shared: Shared) -> None:
    async def play(visitor: Visitor) -> None:
        cookies = dict(visitor.client.cookies)
        answer = await visitor.post("sign-out")
        assert (answer.status_code, answer.headers["location"]) == (303, link("sign-in"))
        visitor.client.cookies.update(cookies)
        assert (await visitor.get()).status_code == 303

    shared(play)


def test_an_idle_session_expires_and_polling_is_no_use(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        time = visitor.front.time
        time.advance(seconds(IDLE) - 60)
        assert (await visitor.get()).status_code == 200
        time.advance(seconds(IDLE) - 60)
        assert (await visitor.get("live")).status_code == 200
        time.advance(60)
        assert (await visitor.get("live")).status_code == 401
        assert (await visitor.get()).status_code == 303

    visit(tmp_path, play)


def test_a_session_expires_after_some_hours_of_use(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        steps = 2 * LONGEST // IDLE
        for step in range(1, steps + 1):
            visitor.front.time.advance(seconds(IDLE) / 2)
            assert (await visitor.get()).status_code == (200 if step < steps else 303)

    visit(tmp_path, play)


def test_a_session_ends_with_its_key(tmp_path: Path) -> None:
    current = [NAMESPACE]

    async def play(visitor: Visitor) -> None:
        assert (await visitor.get()).status_code == 200
        current[0] = (ROOT.rotate_key(WhichKey.PRIMARY), SENDER, LISTENER)
        assert (await visitor.get("live")).status_code == 401
        assert (await visitor.get()).status_code == 303
        current[0] = NAMESPACE
        assert (await visitor.get()).status_code == 303

    visit(tmp_path, play, rules=lambda: current[0])


def test_the_number_of_sessions_is_limited() -> None:
    now = [0]
    sessions = PortalSessions(lambda: now[0], most=3)
    begun = []
    for each in range(3):
        now[0] += SECOND
        begun.append(sessions.begin(f"token {each}"))
    assert sessions.find(begun[0].id) is begun[0]
    sessions.begin("one more")
    assert len(sessions) == 3
    assert sessions.find(begun[1].id) is None
    assert sessions.find(begun[0].id) is begun[0]
    assert "token" not in repr(begun[0])
    assert begun[0].id not in repr(begun[0])


@pytest.mark.parametrize(
    ("onward", "leads_to"),
    [
        ("/$portal/entity?path=orders", "/$portal/entity?path=orders"),
        ("https://evil.example.org/", BASE),
        ("//evil.example.org/$portal/", BASE),
        ("/orders/messages", BASE),
        ("/$portal/\\evil", BASE),
        ("/$portal/../orders/messages", BASE),
        ("/$portal/entity?path=..", "/$portal/entity?path=.."),
        ("/$portal/\r\nset-cookie: x=y", BASE),
    ],
)
def test_signing_in_redirects_only_within_the_portal(shared: Shared, onward: str, leads_to: str) -> None:
    async def play(visitor: Visitor) -> None:
        answer = await visitor.try_to_sign_in({"rule": ROOT.name, "key": "root-one", "onward": onward})
        assert (answer.status_code, answer.headers["location"]) == (303, leads_to)

    shared(play, rule=None)


def test_signing_in_leads_to_the_requested_page(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.front.queue("a/b")
        sent = await visitor.get("entity/duplicates", path="a/b", message_id="x&y")
        page = await visitor.client.get(sent.headers["location"])
        assert "onward" in page.text
        assert "a/b" in words(page) or "path=a/b" in page.text

    visit(tmp_path, play, rule=None)


def test_two_brokers_on_one_machine_do_not_sign_each_other_out(shared: Shared) -> None:
    async def play(visitor: Visitor) -> None:
        there = {"host": "localhost:5301"}
        page = await visitor.client.get(link("sign-in"), headers=there)
        [name] = [name for name in page.headers.get_list("set-cookie") if "form" in name]
        assert name.startswith("oncebus-form-5301=")
        assert (await visitor.client.get(BASE, headers=there)).status_code == 303
        assert (await visitor.get()).status_code == 200

    shared(play)


def test_keys_and_sessions_are_in_no_page_address_or_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def play(visitor: Visitor) -> None:
        caplog.set_level("DEBUG")
        await visitor.front.queue(authorization_rules=(SENDER,))
        seen = [caplog.text]
        for page in LOOKS:
            answer = await visitor.get(page, path="orders", kind="queue")
            seen += [answer.text, answer.headers.get("location", "")]
        session = next(cookie.value for cookie in visitor.client.cookies.jar if "session" in cookie.name)
        assert session is not None
        for secret in ("root-one", "root-two", "sender-one", "sig=", session):
            assert not any(secret in text for text in seen)

    visit(tmp_path, play)


@pytest.mark.parametrize(
    ("scheme", "address", "is_warned"),
    [("http", "10.0.0.1", True), ("https", "10.0.0.1", False), ("http", "127.0.0.1", False), ("http", "::1", False)],
)
def test_signing_in_without_tls_shows_a_warning(shared: Shared, scheme: str, address: str, is_warned: bool) -> None:
    async def play(visitor: Visitor) -> None:
        async with visiting(visitor.front, scheme=scheme, address=address) as one:
            page = words(await one.get("sign-in"))
            assert ("This connection is not encrypted" in page) == is_warned

    shared(play, rule=None)
