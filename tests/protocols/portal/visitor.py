"""A visitor of the portal without a browser: requests pages, submits forms, keeps cookies."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from oncebus.model.access import AuthorizationRule, KeyFile, connection_string
from oncebus.programs.serve.app import make_app
from oncebus.protocols.portal.links import link
from oncebus.protocols.portal.portal import PAGES
from tests.broker.in_process import FakeTime, running_broker
from tests.protocols.http.http_front import LIMITS, NAMESPACE, ROOT, Front

HERE = "localhost:5300"
_SEAL = re.compile(r'name="seal" value="([0-9a-f]{64})"')
_INVISIBLE = re.compile(r"<[^>]*>")

LOOKS = [name for name, methods in PAGES.items() if "GET" in methods]
CHANGES = [name for name, methods in PAGES.items() if "POST" in methods]
FIGURES = ("live", "entity/live")
FILLED = {"path": "orders", "kind": "queue", "name": "made", "confirm": "orders", "message-id": "x", "number": "1"}
"""Values for every form."""

Fields = Mapping[str, str | list[str]]
Play = Callable[["Visitor"], Awaitable[None]]


class Visitor:
    """A visitor with its own cookies. `front` is the broker behind the portal."""

    def __init__(self, front: Front, client: httpx.AsyncClient) -> None:
        self.front = front
        self.client = client
        self.seal = ""

    async def get(self, page: str = "", /, *, headers: Mapping[str, str] | None = None, **query: Any) -> httpx.Response:
        answer = await self.client.get(link(page, **query), headers=headers)
        found = _SEAL.search(answer.text)
        if found is not None:
            self.seal = found[1]
        return answer

    async def post(
        self,
        page: str,
        fields: Fields | None = None,
        *,
        seal: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Submit a form, with the seal of the last page unless another is given."""
        data = {"seal": self.seal if seal is None else seal, **(fields or {})}
        return await self.client.post(link(page), data=data, headers=headers)

    async def follow(self, answer: httpx.Response) -> httpx.Response:
        """Return the page that a redirect leads to."""
        assert answer.status_code == 303, shown(answer)
        followed = await self.client.get(answer.headers["location"])
        assert followed.status_code == 200, shown(followed)
        return followed

    async def try_to_sign_in(self, fields: Fields) -> httpx.Response:
        await self.get("sign-in")
        return await self.post("sign-in", fields)

    async def sign_in(self, rule: AuthorizationRule = ROOT, entity: str | None = None) -> None:
        text = connection_string("localhost", None, rule, emulator=True, entity=entity)
        await self.follow(await self.try_to_sign_in({"connection-string": text}))
        # Later forms belong to the session.
        await self.get()

    async def new(self, page: str, fields: Fields) -> httpx.Response:
        """Submit a form that must succeed, and follow the redirect."""
        return await self.follow(await self.post(page, fields))


async def is_untouched(visitor: Visitor) -> bool:
    """Return whether the broker still has only the queue `orders`, and it is empty."""
    broker = visitor.front.broker
    names = [queue.name for queue in broker.catalogue.queues]
    return names == ["orders"] and (await broker.counts("orders")).new == 0


def shown(answer: httpx.Response) -> str:
    """Return the text of a page, without markup."""
    return html.unescape(_INVISIBLE.sub(" ", answer.text))


def words(answer: httpx.Response) -> str:
    """Return the text of a page with single spaces."""
    return " ".join(shown(answer).split())


@asynccontextmanager
async def visiting(front: Front, *, scheme: str = "http", address: str = "10.0.0.1") -> AsyncIterator[Visitor]:
    """Yield a visitor who is not signed in."""
    transport = httpx.ASGITransport(app=front.app, client=(address, 40000))
    async with httpx.AsyncClient(transport=transport, base_url=f"{scheme}://{HERE}") as client:
        yield Visitor(front, client)


@asynccontextmanager
async def portal(
    data: Path,
    *,
    rules: Callable[[], tuple[AuthorizationRule, ...]] = lambda: NAMESPACE,
    names: Sequence[str] = (),
    keys: KeyFile | None = None,
    **options: Any,
) -> AsyncIterator[Front]:
    """Run a broker with its portal. The test moves its clock."""
    time = FakeTime()
    async with running_broker(data, time, **options) as broker:
        app = make_app(broker, namespace_rules=rules, limits=LIMITS, portal_names=names, keys=keys)
        yield Front(app, broker, broker._core, time)


def visit(data: Path, play: Play, *, rule: AuthorizationRule | None = ROOT, **options: Any) -> None:
    """Run a scenario with a signed-in visitor, on a broker of its own."""

    async def run() -> None:
        async with portal(data, **options) as front, visiting(front) as visitor:
            if rule is not None:
                await visitor.sign_in(rule)
            await play(visitor)

    asyncio.run(run())
