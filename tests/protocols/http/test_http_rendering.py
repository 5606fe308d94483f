"""Peeking at messages that are much work to decode: the work is limited, and outside of the event loop."""

from __future__ import annotations

import asyncio
import base64
import threading
from pathlib import Path
from typing import Any

import pytest

from oncebus import amqp
from oncebus.amqp.limits import MOST_ELEMENTS
from oncebus.broker.sending import Incoming
from oncebus.protocols.http import receiving, rendering
from oncebus.protocols.http.errors import Refused
from oncebus.protocols.http.rendering import LARGEST_VALUE, MOST_PAGES, MOST_WAITING, Renderer, bytes_to_read
from oncebus.protocols.http.worker import Worker
from oncebus.protocols.portal import contents
from oncebus.values.threads import OwnThread
from tests.protocols.http.http_front import Front, scenario
from tests.protocols.portal.visitor import Visitor, visit


def nested(size: int) -> bytes:
    """Return a body with a value: a list with a list in each byte."""
    return b"\x00\x53\x77\xd0" + (size + 4).to_bytes(4) + size.to_bytes(4) + b"\x45" * size


def counted(monkeypatch: pytest.MonkeyPatch, *modules: object) -> list[tuple[int, bool]]:
    """Return a list of the bodies that are decoded from now on: the size, and whether it was in the loop's thread."""
    decoded: list[tuple[int, bool]] = []
    decode = amqp.decode_body

    def decode_body(body: bytes) -> amqp.Body:
        decoded.append((len(body), threading.current_thread() is threading.main_thread()))
        return decode(body)

    monkeypatch.setattr(amqp, "decode_body", decode_body)
    return decoded


async def send(front: Front, *bodies: bytes, head: bytes = b"") -> None:
    await front.queue("q")
    for number, body in enumerate(bodies):
        await front.broker.send("q", [Incoming(head, body, f"id-{number}")])


def test_large_values_are_shown_as_bytes_and_never_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = counted(monkeypatch)

    async def play(front: Front) -> None:
        await send(front, *[nested(250_000)] * 30, nested(3))
        seen: list[dict[str, Any]] = []
        start: int | None = 0
        while start is not None:
            page = (await front.ask("GET", "/q/$messages", query=f"count=100&from={start}")).json
            seen += page["messages"]
            start = page["next"]
        assert len(seen) == 31
        assert base64.b64decode(str(seen[0]["Body"])) == nested(250_000)
        assert seen[0]["IsBodyBase64"]
        assert seen[30]["Body"] == "[[],[],[]]"
        assert decoded == [(len(nested(3)), False)]

    scenario(tmp_path, play)


def test_a_page_ends_when_its_values_are_too_much_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = counted(monkeypatch)

    async def play(front: Front) -> None:
        await send(front, *[nested(60_000)] * 10)
        page = (await front.ask("GET", "/q/$messages", query="count=10")).json
        assert len(page["messages"]) == rendering.MOST_BYTES_READ // len(nested(60_000)) == 8
        assert page["next"] == 9
        assert not any(is_loop for _, is_loop in decoded)
        page = (await front.ask("GET", "/q/$messages", query="count=10&from=9")).json
        assert [each["BrokerProperties"]["SequenceNumber"] for each in page["messages"]] == [9, 10]

    scenario(tmp_path, play)


def test_a_page_ends_when_its_bodies_are_too_large(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        data = b"\x00\x53\x75\xb0" + (250_000).to_bytes(4) + b"x" * 250_000
        await send(front, *[data] * 40)
        page = (await front.ask("GET", "/q/$messages", query="count=100")).json
        assert len(page["messages"]) == (8 << 20) // 250_017
        assert page["next"] == len(page["messages"]) + 1

    scenario(tmp_path, play)


def test_a_received_message_is_decoded_outside_of_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = counted(monkeypatch)

    async def play(front: Front) -> None:
        await send(front, nested(60_000))
        answer = await front.take("q")
        assert answer.headers["content-type"] == "application/json"
        assert answer.body == b"[" + b",".join([b"[]"] * 60_000) + b"]"
        assert decoded == [(len(nested(60_000)), False)]

    scenario(tmp_path, play)


def test_the_portal_decodes_no_large_values_and_none_in_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = counted(monkeypatch)

    async def play(visitor: Visitor) -> None:
        await send(visitor.front, *[nested(60_000)] * 12, *[nested(250_000)] * 8)
        page = await visitor.get("entity/messages", path="q")
        assert page.text.count('class="foreign body"') == 8
        assert page.text.count(" bytes</span>") == 12
        assert decoded == [(len(nested(60_000)), False)] * 8
        decoded.clear()
        page = await visitor.get("entity/messages", path="q", show=1)
        assert "Body, a value" in page.text
        page = await visitor.get("entity/messages", path="q", show=20)
        assert "Body that is too large to be read here" in page.text
        # The panel has an allowance of its own.
        assert decoded == [(len(nested(60_000)), False)] * 17

    visit(tmp_path, play)


def test_peeking_leaves_large_properties_out() -> None:
    head = amqp.with_application_properties(b"", {f"property {number}": "x" * 1000 for number in range(300)})
    shown = contents.properties_list(head, rendering.Allowance())
    assert "are too large to be shown here" in str(shown)


@pytest.mark.parametrize(
    ("body", "size"),
    [
        (b"", 0),
        (b"\xff\xff", 0),
        (b"\x00\x53\x75\xa0\x02ab", 0),
        (b"\x00\x53\x75\xa0\x02ab" * 3, 0),
        (b"\x00\x53\x75\xa0\x02ab" * 100, 700),
        (b"\x00\x53\x77\xa1\x02ab", 0),
        (b"\x00\x53\x77\x45", 4),
        (b"\x00\x53\x76\x45", 4),
    ],
)
def test_how_many_bytes_must_be_decoded(body: bytes, size: int) -> None:
    assert bytes_to_read(body) == size


def test_a_huge_value_is_delivered_in_its_encoding() -> None:
    body = nested(LARGEST_VALUE)
    assert receiving._content(body, LARGEST_VALUE).body is body
    # The same holds for a value with more elements than the decoder accepts.
    assert receiving._content(nested(MOST_ELEMENTS + 1), LARGEST_VALUE).kind == "application/amqp"
    assert receiving._content(nested(MOST_ELEMENTS // 2), LARGEST_VALUE).kind == "application/json"


def test_a_limited_number_of_requests_may_wait_for_a_page() -> None:
    async def play() -> None:
        renderer = Renderer(Worker(OwnThread("bodies")))
        done = asyncio.Event()

        async def look(key: str) -> None:
            async with renderer.page(key):
                await done.wait()

        looks = [asyncio.create_task(look("many")) for _ in range(MOST_PAGES + MOST_WAITING)]
        await asyncio.sleep(0)
        with pytest.raises(Refused, match="too many clients peek at messages"):
            await look("many")
        # Clients with another key may still wait.
        looks.append(asyncio.create_task(look("few")))
        await asyncio.sleep(0)
        assert not looks[-1].done()
        done.set()
        await asyncio.gather(*looks)
        await look("many")

    asyncio.run(play())
