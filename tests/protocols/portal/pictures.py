"""Takes the pictures of the portal for the documentation, over a broker with the same messages each time.

python -m tests.protocols.portal.pictures docs/images [scene]
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

from oncebus.broker.addresses import Address
from oncebus.broker.broker import Broker
from oncebus.engine.store import Action, Mode, Settlement, Span
from oncebus.model.entities import Catalogue, Queue, Rule, SqlAction, SqlFilter, Subscription, Topic
from oncebus.values.durations import HOUR, MINUTE
from tests.broker.scenes import message

from .chromium import running_chromium, sign_in
from .served import Served, served

STEPS = 310
MANY = 2000
COLOURS = 256


class Picture(NamedTuple):
    """A picture: the broker that it shows, the page, and how to show it."""

    name: str
    scene: str
    scheme: Literal["light", "dark"]
    width: int
    height: int
    show: Callable[[Page, Served], None]


def _at(address: str, waits_for: str | None = None) -> Callable[[Page, Served], None]:
    def show(page: Page, service: Served) -> None:
        page.goto(f"{service.url}$portal/{address}")
        if waits_for is not None:
            page.locator(waits_for).first.wait_for()

    return show


def _create(page: Page, service: Served) -> None:
    page.goto(f"{service.url}$portal/create?kind=queue")
    page.get_by_label("Name", exact=True).fill("payments")
    page.get_by_label("Enable duplicate detection").check()
    page.get_by_label("Minutes").fill("0")
    page.get_by_label("Seconds").fill("5")
    page.get_by_role("button", name="Create").click()
    page.locator(".problems").wait_for()


def _dead_letters(page: Page, service: Served) -> None:
    _at("entity/messages?path=orders&of=dead-letters")(page, service)
    page.get_by_role("link", name="odd-2").click()
    page.locator("#panel h2").wait_for()


def _overview(page: Page, service: Served) -> None:
    _at("", ".plot polygon")(page, service)
    box = page.get_by_label("Time in the plot").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.45, box["y"] + 40)


PICTURES = (
    Picture("portal-overview", "shop", "light", 1280, 760, _overview),
    Picture("portal-many", "many", "light", 1280, 900, _at("?sort=dead&order=descending", ".plot polygon")),
    Picture("portal-empty", "empty", "light", 1280, 640, _at("")),
    Picture("portal-queue-dark", "shop", "dark", 1280, 760, _at("entity?path=orders", ".plot polygon")),
    Picture("portal-duplicates", "shop", "light", 1280, 700, _at("entity/duplicates?path=orders&range=1h")),
    Picture("portal-dead-letters", "shop", "light", 1280, 700, _dead_letters),
    Picture("portal-pipeline-dark", "busy", "dark", 1280, 760, _at("pipeline")),
    Picture("portal-create", "shop", "light", 1280, 640, _create),
    Picture("portal-overview-phone", "shop", "light", 390, 844, _at("", ".plot polygon")),
    Picture("portal-duplicates-phone", "shop", "dark", 390, 844, _at("duplicates")),
)


async def populate(service: Served) -> None:
    """Fill the broker with ten minutes of a shop's messages."""
    broker = service.broker
    await _make(broker)
    for path in ("orders", "prices/Subscriptions/all"):
        entity = broker.catalogue.find(path)
        assert entity is not None
        broker.consumers.attach(entity.id)
    orders = 10_000
    for step in range(STEPS):
        busy = 6 + 4 * math.sin(step / 24) + 3 * math.sin(step / 7)
        count = max(round(busy), 1)
        ids = [f"order-{orders + each}" for each in range(count)]
        again = [f"order-{max(orders - 9 - 3 * each, 10_000)}" for each in range(_repeated(step))]
        if step % 50 == 20:
            again.append("order-10007")
        orders += count
        await broker.send("orders", [message(each, b'{"item": "teapot"}', subject="order") for each in ids + again])
        if step % 3 == 0:
            prices = [message(f"price-{step}", b"", {"price": 80 + step % 60, "item": "teapot"}, subject="price")]
            await broker.send("prices", prices)
        if step > STEPS - 40:
            await broker.send("mail", [message(f"mail-{step}", b"Dear customer")])
        await broker.counts("orders")
        await broker.counts("prices")
        await broker.receive(Address("orders"), count - (step % 9 == 0), mode=Mode.RECEIVE_AND_DELETE)
        await broker.receive(Address("prices/Subscriptions/all"), 1, mode=Mode.RECEIVE_AND_DELETE)
        service.time.advance(2)
        await broker.history(None, Span.TEN_MINUTES)
    await _spoil(broker)
    await broker.counts("prices")


async def populate_many(service: Served) -> None:
    """Create very many queues, some of them with messages and dead letters."""
    broker = service.broker
    names = [f"{team}/{kind}-{number:03}" for team in _TEAMS for kind in _KINDS for number in range(MANY // 25)]

    def create(catalogue: Catalogue, now: int) -> Catalogue:
        for at, name in enumerate(names):
            catalogue = catalogue.create(Queue(name=name, requires_duplicate_detection=at % 3 == 0), now)
        return catalogue

    await broker.change(create)
    for step in range(30):
        for at in range(0, len(names), 97):
            sent = [message(f"{step}-{each}") for each in range(1 + at % 5)] + [message(f"{step}-0")] * (at % 2)
            await broker.send(names[at], sent)
        await broker.counts(names[97])
        service.time.advance(4)
        await broker.history(None, Span.TEN_MINUTES)
    for at in range(0, len(names), 291):
        for received in await broker.receive(Address(names[at]), at % 7 + 1):
            assert received.message.token is not None
            await broker.settle(Address(names[at]), [Settlement(Action.DEAD_LETTER, received.message.token)])
    for at in range(0, len(names), 97 * 2):
        broker.consumers.attach(broker.catalogue.queue(names[at]).id)


async def populate_busy(service: Served) -> None:
    """Send and receive for some seconds of real time."""
    broker = service.broker
    await _make(broker)
    for step in range(80):
        ids = [f"order-{step}-{each}" for each in range(20 + step % 30)]
        await broker.send("orders", [message(each, b'{"item": "teapot"}') for each in [*ids, *ids[:2]]])
        await broker.receive(Address("orders"), 40, mode=Mode.RECEIVE_AND_DELETE, wait=0.05)


async def _nothing(_: Served) -> None:
    pass


_TEAMS = ("billing", "orders", "mail", "stock", "web")
_KINDS = ("inbox", "events", "retries", "audit", "export")
SCENES = {"shop": populate, "busy": populate_busy, "many": populate_many, "empty": _nothing}


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
        await broker.change(lambda catalogue, now, queue=queue: catalogue.create(queue, now))  # type: ignore[misc]
    await broker.change(lambda catalogue, now: catalogue.create(topic, now))
    await broker.change(lambda catalogue, now: catalogue.create(Subscription(topic="prices", name="all"), now))
    await broker.change(lambda catalogue, now: catalogue.create(Subscription(topic="prices", name="high"), now, [high]))


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
    page.screenshot(path=path)
    context.close()
    with Image.open(path) as image:
        image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


def main(folder: Path, wanted: str = "") -> None:
    """Take all pictures, or those of one scene."""
    folder.mkdir(parents=True, exist_ok=True)
    for scene, fill in SCENES.items():
        if wanted not in ("", scene):
            continue
        with (
            tempfile.TemporaryDirectory() as data,
            served(Path(data), has_real_time=scene == "busy") as service,
            running_chromium() as browser,
        ):
            service.run(fill(service), 300)
            for picture in PICTURES:
                if picture.scene == scene:
                    path = folder / f"{picture.name}.png"
                    take(browser, service, picture, path)
                    print(f"{path}: {path.stat().st_size // 1024} KB")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
