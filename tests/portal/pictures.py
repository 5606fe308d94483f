"""Takes the pictures of the portal for the documentation, over a broker with the same messages each time.

PYTHONPATH=tests python -m portal.pictures docs/images
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from PIL import Image
from playwright.sync_api import Browser, Page

from broker.scenes import message
from oncebus.broker.addresses import Address
from oncebus.broker.broker import Broker
from oncebus.durations import HOUR, MINUTE
from oncebus.entities import Queue, Rule, SqlAction, SqlFilter, Subscription, Topic
from oncebus.store import Action, Mode, Settlement

from .chromium import running_chromium, sign_in
from .served import Served, served

STEPS = 310
COLOURS = 256


class Picture(NamedTuple):
    """A picture: the page, and how to show it."""

    name: str
    scheme: Literal["light", "dark"]
    width: int
    height: int
    show: Callable[[Page, Served], None]


def _overview(page: Page, service: Served) -> None:
    page.goto(f"{service.url}$portal/")
    page.locator(".plot polyline").first.wait_for()


def _queue(page: Page, service: Served) -> None:
    page.goto(f"{service.url}$portal/entity?path=orders")
    page.locator(".plot polyline").first.wait_for()


def _create(page: Page, service: Served) -> None:
    page.goto(f"{service.url}$portal/create?kind=queue")
    page.get_by_label("Name", exact=True).fill("payments")
    page.get_by_label("Enable duplicate detection").check()
    page.get_by_label("Minutes").fill("0")
    page.get_by_label("Seconds").fill("5")
    page.get_by_role("button", name="Create").click()
    page.locator(".problems").wait_for()


def _drops(page: Page, service: Served) -> None:
    page.goto(f"{service.url}$portal/entity/drops?path=orders")
    page.get_by_label("MessageId").fill(page.locator("tbody th").first.inner_text())
    page.get_by_role("button", name="Find").click()


def _dead_letters(page: Page, service: Served) -> None:
    page.goto(f"{service.url}$portal/entity/messages?path=orders&of=dead-letters")
    page.locator("summary").first.click()


def _subscription(page: Page, service: Served) -> None:
    page.goto(f"{service.url}$portal/entity?path=prices/Subscriptions/high")
    page.locator(".plot polyline").first.wait_for()


PICTURES = (
    Picture("portal-overview", "light", 1200, 800, _overview),
    Picture("portal-queue-dark", "dark", 1200, 800, _queue),
    Picture("portal-create", "light", 1200, 800, _create),
    Picture("portal-drops", "light", 1200, 640, _drops),
    Picture("portal-dead-letters-phone", "dark", 390, 844, _dead_letters),
    Picture("portal-queue-phone", "light", 390, 844, _queue),
)


async def populate(service: Served) -> None:
    """Fill the broker with ten minutes of a shop's messages."""
    broker = service.broker
    await _make(broker)
    orders = 10_000
    for step in range(STEPS):
        busy = 6 + 4 * math.sin(step / 24) + 3 * math.sin(step / 7)
        count = max(round(busy), 1)
        ids = [f"order-{orders + each}" for each in range(count)]
        again = [f"order-{max(orders - 9 - each, 10_000)}" for each in range(_repeated(step))]
        orders += count
        await broker.send("orders", [message(each, b'{"item": "teapot"}', subject="order") for each in ids + again])
        if step % 3 == 0:
            prices = [message(f"price-{step}", b"", {"price": 80 + step % 60, "item": "teapot"}, subject="price")]
            await broker.send("prices", prices)
        await broker.counts("orders")
        await broker.receive(Address("orders"), count - (step % 5 == 0), mode=Mode.RECEIVE_AND_DELETE)
        service.time.advance(2)
    await _spoil(broker)
    await broker.counts("prices")


def _repeated(step: int) -> int:
    """Repeat some sends, like a sender that sometimes lost its response."""
    if 120 <= step < 150:
        return 5
    return 2 if step % 17 < 3 else 0


async def _make(broker: Broker) -> None:
    queues = (
        Queue(name="orders", requires_duplicate_detection=True, duplicate_detection_history_time_window=HOUR),
        Queue(name="invoices/eu", requires_duplicate_detection=True, requires_session=True),
        Queue(name="mail"),
    )
    topic = Topic(name="prices", requires_duplicate_detection=True, duplicate_detection_history_time_window=10 * MINUTE)
    high = Rule("above-100", SqlFilter("price > 100"), SqlAction("SET urgent = true"))
    for queue in queues:
        await broker.change(lambda catalogue, now, queue=queue: catalogue.created(queue, now))  # type: ignore[misc]
    await broker.change(lambda catalogue, now: catalogue.created(topic, now))
    await broker.change(lambda catalogue, now: catalogue.created(Subscription(topic="prices", name="all"), now))
    await broker.change(
        lambda catalogue, now: catalogue.created(Subscription(topic="prices", name="high"), now, [high])
    )


async def _spoil(broker: Broker) -> None:
    """Send a few messages that end up in quarantine."""
    reasons = ("UnknownItem", "NegativeQuantity", "UnknownItem")
    bodies = (b'{"item": "teapod", "quantity": 1}', b'{"item": "teapot", "quantity": -1}', b"\x00\x01\xfe\xff")
    for number, body in enumerate(bodies, start=1):
        await broker.send("orders", [message(f"odd-{number}", body, {"attempt": number}, subject="order")])
    await broker.counts("orders")
    for received in await broker.receive(Address("orders"), 1000):
        identity, token = received.message.message_id, received.message.token
        assert token is not None
        settlement = Settlement(Action.RELEASE, token)
        if identity.startswith("odd-"):
            reason = reasons[int(identity[-1]) - 1]
            settlement = Settlement(Action.DEAD_LETTER, token, reason=reason, description="The order cannot be filled.")
        await broker.settle(Address("orders"), [settlement])


def take(browser: Browser, service: Served, picture: Picture, path: Path) -> None:
    """Take one picture."""
    size = {"width": picture.width, "height": picture.height}
    context = browser.new_context(viewport=size, color_scheme=picture.scheme, device_scale_factor=1)  # type: ignore[arg-type]
    page = context.new_page()
    sign_in(page, service)
    picture.show(page, service)
    page.screenshot(path=path, full_page=picture.width > 500 and picture.name != "portal-create")
    context.close()
    with Image.open(path) as image:
        image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


def main(folder: Path) -> None:
    """Take all pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as data, served(Path(data)) as service, running_chromium() as browser:
        service.run(populate(service))
        for picture in PICTURES:
            path = folder / f"{picture.name}.png"
            take(browser, service, picture, path)
            print(f"{path}: {path.stat().st_size // 1024} KB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
