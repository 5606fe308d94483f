"""Fetches the public keys of an identity provider, and keeps them.

The provider names the address of its keys in `{issuer}/.well-known/openid-configuration`. Keys are fetched at the
start, every quarter of an hour, and when a token names an unknown key. Clients can make the last happen, so there is at
most one fetch at a time, and a pause after each, however many tokens ask. While the provider is away, the known keys
stay.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import httpx

from oncebus.model.access.issuer import IssuerKey, read_keys
from oncebus.protocols.untrusted_json import parse_json
from oncebus.values.errors import OncebusError, clip
from oncebus.values.hosts import is_safe_url

REFRESH_SECONDS = 900.0
RETRY_SECONDS = 30.0
PAUSE_SECONDS = 10.0
"""The time between two fetches."""
FETCH_SECONDS = 5.0
"""The time limit of one answer of the provider."""
LARGEST_ANSWER = 512 * 1024
DISCOVERY = "/.well-known/openid-configuration"

log = logging.getLogger(__name__)

Get = Callable[[str], Awaitable[bytes]]


class IssuerUnavailable(OncebusError):
    """The identity provider does not answer, or not with keys."""


class SigningKeys:
    """The keys of one issuer. `get` returns the content of a URL, or raises `IssuerUnavailable`."""

    def __init__(self, issuer: str, get: Get | None = None, now: Callable[[], float] | None = None) -> None:
        self._issuer = issuer
        self._get = get or Downloads().get
        self._now = now or (lambda: asyncio.get_running_loop().time())
        self._known: Mapping[str, IssuerKey] = {}
        self._fetching: asyncio.Task[bool] | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._not_before = float("-inf")

    @property
    def known(self) -> Mapping[str, IssuerKey]:
        """See `KeySource`."""
        return self._known

    async def look_for(self, kid: str) -> None:
        """See `KeySource`."""
        if kid not in self._known and (self._fetching is not None or self._now() >= self._not_before):
            await self._fetch()

    def start(self) -> None:
        """Fetch the keys now, and then again and again."""
        self._refreshing = asyncio.create_task(self._refresh())

    async def stop(self) -> None:
        """End all fetching."""
        tasks = [task for task in (self._refreshing, self._fetching) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _refresh(self) -> None:
        while True:
            has_keys = await self._fetch()
            await asyncio.sleep(REFRESH_SECONDS if has_keys else RETRY_SECONDS)

    async def _fetch(self) -> bool:
        """Join the fetch under way, or begin one. Return whether it brought keys."""
        if self._fetching is None:
            self._fetching = asyncio.create_task(self._fetch_once())
        # A caller that goes away must not end what the others wait for.
        return await asyncio.shield(self._fetching)

    async def _fetch_once(self) -> bool:
        try:
            self._known = await self._keys()
        except Exception as error:
            # Also what nobody thought of, such as an address that the network refuses: fetching must go on later.
            stays = f"Its {len(self._known)} known keys stay valid." if self._known else "Its tokens are refused."
            log.warning("The identity provider %s cannot be asked for its keys: %s %s", self._issuer, error, stays)
            return False
        finally:
            self._not_before = self._now() + PAUSE_SECONDS
            self._fetching = None
        return True

    async def _keys(self) -> Mapping[str, IssuerKey]:
        found = await self._document(self._issuer.removesuffix("/") + DISCOVERY)
        if found.get("issuer") != self._issuer:
            raise IssuerUnavailable(
                f"{DISCOVERY} names the issuer {clip(found.get('issuer'))}. Both must be the same, to the letter."
            )
        address = found.get("jwks_uri")
        if not isinstance(address, str) or not is_safe_url(address):
            raise IssuerUnavailable(f"{DISCOVERY} has the jwks_uri {clip(address)}. Not an https address.")
        keys = read_keys(await self._document(address))
        if not keys:
            raise IssuerUnavailable(f"{clip(address)} has no key that can verify a token.")
        return keys

    async def _document(self, url: str) -> dict[str, Any]:
        try:
            content = parse_json(await self._get(url))
        except ValueError:
            raise IssuerUnavailable(f"{clip(url)} is not JSON.") from None
        if not isinstance(content, dict):
            raise IssuerUnavailable(f"{clip(url)} is not a JSON object.")
        return content


class Downloads:
    """Gets small documents, each within a time and a size. It follows no redirects."""

    def __init__(self) -> None:
        # It reads all certificates that we trust, which takes long.
        self._tls = httpx.create_ssl_context()

    async def get(self, url: str) -> bytes:
        """Return the content of a URL. Raises `IssuerUnavailable`."""
        pieces, size = [], 0
        # Without compression: few bytes could become many.
        headers = {"accept": "application/json", "accept-encoding": "identity"}
        try:
            async with (
                asyncio.timeout(FETCH_SECONDS),
                httpx.AsyncClient(verify=self._tls, timeout=FETCH_SECONDS) as client,
                client.stream("GET", url, headers=headers) as answer,
            ):
                if answer.status_code != 200 or answer.headers.get("content-encoding", "identity") != "identity":
                    raise IssuerUnavailable(f"{clip(url)} answers with the status {answer.status_code}.")
                async for piece in answer.aiter_raw():
                    pieces.append(piece)
                    size += len(piece)
                    if size > LARGEST_ANSWER:
                        raise IssuerUnavailable(f"{clip(url)} has more than {LARGEST_ANSWER} bytes.")
        except TimeoutError:
            raise IssuerUnavailable(f"{clip(url)} does not answer within {FETCH_SECONDS:g} seconds.") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise IssuerUnavailable(f"{clip(url)} does not answer: {error or type(error).__name__}.") from None
        return b"".join(pieces)
