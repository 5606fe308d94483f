from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable, Coroutine
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from oncebus.protocols.signing_keys import LARGEST_ANSWER, PAUSE_SECONDS, Downloads, IssuerUnavailable, SigningKeys
from tests.identity_provider import ServedProvider, answer, public_jwk, served_provider

DISCOVERY = "/tenant/.well-known/openid-configuration"
KEYS = "/tenant/keys"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def play(scenario: Callable[[ServedProvider, SigningKeys, Clock], Coroutine[Any, Any, None]]) -> None:
    clock = Clock()
    with served_provider() as provider:

        async def run() -> None:
            keys = SigningKeys(provider.url, now=clock)
            try:
                await scenario(provider, keys, clock)
            finally:
                await keys.stop()

        asyncio.run(run())


def test_an_unknown_key_is_fetched_once() -> None:
    async def scenario(provider: ServedProvider, keys: SigningKeys, clock: Clock) -> None:
        await keys.look_for("rsa-1")
        assert list(keys.known) == ["rsa-1"]
        await keys.look_for("rsa-1")
        assert provider.paths == [DISCOVERY, KEYS]

    play(scenario)


def test_a_rotated_key_is_found_and_the_old_one_forgotten() -> None:
    async def scenario(provider: ServedProvider, keys: SigningKeys, clock: Clock) -> None:
        await keys.look_for("rsa-1")
        provider.kids = ("ec-1",)
        clock.now += PAUSE_SECONDS
        await keys.look_for("ec-1")
        assert list(keys.known) == ["ec-1"]

    play(scenario)


def test_a_flood_of_unknown_keys_is_one_fetch_in_each_pause() -> None:
    async def scenario(provider: ServedProvider, keys: SigningKeys, clock: Clock) -> None:
        await asyncio.gather(*(keys.look_for(f"made-up-{number}") for number in range(500)))
        assert provider.paths == [DISCOVERY, KEYS]
        clock.now += PAUSE_SECONDS - 0.01
        await asyncio.gather(*(keys.look_for(f"more-{number}") for number in range(500)))
        assert provider.paths == [DISCOVERY, KEYS]
        clock.now += 0.02
        await asyncio.gather(*(keys.look_for(f"again-{number}") for number in range(500)))
        assert provider.paths == [DISCOVERY, KEYS] * 2

    play(scenario)


def test_who_gives_up_does_not_end_the_fetch_of_others() -> None:
    async def scenario(provider: ServedProvider, keys: SigningKeys, clock: Clock) -> None:
        impatient = asyncio.create_task(keys.look_for("x"))
        patient = asyncio.create_task(keys.look_for("rsa-1"))
        await asyncio.sleep(0)
        impatient.cancel()
        await patient
        assert list(keys.known) == ["rsa-1"]

    play(scenario)


def test_an_address_that_no_library_expects_does_not_end_the_fetching() -> None:
    address = "https://127.0.0.1:99999/keys"

    async def scenario(provider: ServedProvider, keys: SigningKeys, clock: Clock) -> None:
        await keys.look_for("rsa-1")
        provider.answers[DISCOVERY] = lambda handler: answer(handler, {"issuer": provider.url, "jwks_uri": address})
        clock.now += PAUSE_SECONDS
        await keys.look_for("another")
        assert list(keys.known) == ["rsa-1"]

    play(scenario)


def test_known_keys_stay_while_the_issuer_is_away(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(provider: ServedProvider, keys: SigningKeys, clock: Clock) -> None:
        await keys.look_for("rsa-1")
        for path, broken in (
            (DISCOVERY, lambda handler: answer(handler, {}, 503)),
            (DISCOVERY, lambda handler: answer(handler, b"<html>")),
            (DISCOVERY, lambda handler: answer(handler, [])),
            (DISCOVERY, lambda handler: answer(handler, {"issuer": "https://other.example.org"})),
            (DISCOVERY, lambda handler: answer(handler, {"issuer": provider.url, "jwks_uri": "http://x.example.org"})),
            (DISCOVERY, lambda handler: answer(handler, {"issuer": provider.url, "jwks_uri": 7})),
            (DISCOVERY, lambda handler: handler.connection.close()),
            (KEYS, lambda handler: answer(handler, {"keys": []})),
            (KEYS, lambda handler: answer(handler, {"keys": [public_jwk("short-1")]})),
        ):
            provider.answers = {path: broken}
            clock.now += PAUSE_SECONDS
            before = len(provider.paths)
            await keys.look_for("new")
            assert len(provider.paths) > before
            assert list(keys.known) == ["rsa-1"]
        assert caplog.text.count("Its 1 known keys stay valid.") == 9
        provider.answers = {}
        provider.kids = ("ec-1",)
        clock.now += PAUSE_SECONDS
        await keys.look_for("ec-1")
        assert list(keys.known) == ["ec-1"]

    play(scenario)


def test_keys_are_fetched_at_the_start() -> None:
    async def scenario(provider: ServedProvider, keys: SigningKeys, clock: Clock) -> None:
        keys.start()
        # Whoever asks joins the first fetch.
        await asyncio.sleep(0)
        await keys.look_for("rsa-1")
        assert provider.paths == [DISCOVERY, KEYS]

    play(scenario)


def test_an_issuer_that_does_not_listen(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        with served_provider() as provider:
            pass
        keys = SigningKeys(provider.url)
        await keys.look_for("rsa-1")
        assert keys.known == {}

    asyncio.run(scenario())
    assert "Its tokens are refused." in caplog.text


def test_answers_are_bounded() -> None:
    big = b" " * (LARGEST_ANSWER + 1)

    def redirect(handler: BaseHTTPRequestHandler) -> None:
        answer(handler, b"", 302, location="http://127.0.0.1:1/")

    async def scenario(provider: ServedProvider, keys: SigningKeys, clock: Clock) -> None:
        get = Downloads().get
        for broken in (
            lambda handler: answer(handler, big),
            lambda handler: answer(handler, gzip.compress(big), content_encoding="gzip"),
            redirect,
        ):
            provider.answers[KEYS] = broken
            with pytest.raises(IssuerUnavailable):
                await get(f"{provider.url}keys")
        # A bomb of brackets is not parsed.
        provider.answers[KEYS] = lambda handler: answer(handler, b"[" * 100_000)
        await keys.look_for("x")
        assert keys.known == {}

    play(scenario)


def test_an_answer_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncebus.protocols.signing_keys.FETCH_SECONDS", 0.05)
    ending: list[bytes] = []

    def hang(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        # Ends when the client has gone.
        ending.append(handler.rfile.read(1))

    async def scenario(provider: ServedProvider, keys: SigningKeys, clock: Clock) -> None:
        provider.answers[KEYS] = hang
        with pytest.raises(IssuerUnavailable, match="does not answer"):
            await Downloads().get(f"{provider.url}keys")

    play(scenario)
    assert ending == [b""]
