"""The portal in a real browser: Debian's Chromium."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from oncebus.broker.addresses import Address
from oncebus.broker.broker import Broker
from oncebus.engine.store import Action, Mode, Settlement
from oncebus.model.access import AuthorizationRule, Right
from oncebus.model.entities import Queue, Rule, SqlFilter, Subscription, Topic
from oncebus.protocols.portal.sessions import IDLE
from oncebus.values.durations import HOUR, SECOND
from tests.broker.scenes import message
from tests.protocols.http.http_front import ROOT

from .chromium import running_chromium, sign_in
from .readable import hard_to_use
from .served import Served, served

PATIENCE = 60_000
PAGES = (
    "",
    "create?kind=queue",
    "create?kind=topic",
    "create?kind=subscription&topic=news",
    "entity?path=nasty",
    "entity?path=news",
    "entity?path=news/Subscriptions/red",
    "entity/rule?path=news/Subscriptions/red",
    "entity/change?path=nasty",
    "entity/delete?path=nasty",
    "entity/detection?path=news",
    "entity/duplicates?path=nasty",
    "entity/duplicates?path=nasty&message-id=x",
    "entity/messages?path=nasty",
    "entity/messages?path=nasty&show=2",
    "entity/messages?path=nasty&of=dead-letters&show=1",
    "entity/send?path=nasty",
    "duplicates",
    "pipeline",
    "search?message-id=x",
    "quarantine",
    "policies",
    "policies?path=nasty",
    "policies/keys?path=nasty&rule=app",
)
NASTY = '"><img src=x onerror=alert(1)><script>alert(1)</script>'
LONG = "x" * 128


# One browser for the module: while Playwright runs, nothing else can run an event loop in this thread.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_chromium() as running:
        expect.set_options(timeout=PATIENCE)
        yield running


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Return a broker that all these tests share, each with entities of its own. One entity has malicious messages."""
    with served(tmp_path_factory.mktemp("served")) as running:
        running.run(_spoiled(running.broker))
        yield running


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context()
    made.set_default_timeout(PATIENCE)
    yield made
    made.close()


@pytest.fixture
def page(context: BrowserContext, service: Served) -> Iterator[Page]:
    """Return a page of a signed-in visitor. Any error in the browser's console fails the test."""
    opened = context.new_page()
    complaints: list[str] = []
    opened.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
    opened.on("pageerror", lambda error: complaints.append(f"error: {error}"))
    opened.on("console", lambda entry: complaints.append(entry.text) if entry.type in ("error", "warning") else None)
    sign_in(opened, service)
    yield opened
    # A form with errors has an error status, which the console logs.
    assert [text for text in complaints if "the server responded with a status of 4" not in text] == []


async def _spoiled(broker: Broker) -> None:
    app = AuthorizationRule("app", frozenset({Right.SEND}), LONG, LONG)
    queue = Queue(name="nasty", requires_duplicate_detection=True, authorization_rules=(app,))
    await broker.change(lambda catalogue, now: catalogue.create(queue, now))
    await broker.change(lambda catalogue, now: catalogue.create(Topic(name="news"), now))
    red = [Rule("red", SqlFilter(f"colour = '{LONG}'"))]
    below = Subscription(topic="news", name="red")
    await broker.change(lambda catalogue, now: catalogue.create(below, now, rules=red))
    one = message(NASTY, NASTY.encode(), {NASTY: NASTY, LONG: LONG}, subject=NASTY)
    two = message(LONG, bytes(range(256)), subject=LONG * 4)
    await broker.send("nasty", [one, two, one, two])
    await broker.counts("nasty")
    [first] = await broker.receive(Address("nasty"), 1)
    assert first.message.token is not None
    dead = Settlement(Action.DEAD_LETTER, first.message.token, reason=NASTY, description=LONG)
    await broker.settle(Address("nasty"), [dead])


def go(page: Page, service: Served, address: str) -> None:
    page.goto(f"{service.url}$portal/{address}")


def send(page: Page, identity: str, properties: str = "") -> None:
    page.get_by_label("MessageId", exact=True).fill(identity)
    page.get_by_label("Body").fill("hello")
    page.get_by_label("Own properties").fill(properties)
    page.get_by_role("button", name="Send").click()


def test_a_duplicate_from_the_box_that_is_checked_to_the_record_of_its_drop(page: Page, service: Served) -> None:
    page.get_by_role("link", name="Create queue").click()
    box = page.get_by_label("Enable duplicate detection")
    expect(box).not_to_be_checked()
    expect(page.get_by_label("Minutes")).to_be_hidden()
    # The form fits one screen; the rest waits under "More".
    expect(page.get_by_role("button", name="Create")).to_be_in_viewport()
    expect(page.get_by_label("Lock duration")).to_be_hidden()
    page.get_by_label("Name", exact=True).fill("orders")
    box.check()
    expect(page.get_by_label("Minutes")).to_have_value("10")
    page.get_by_label("Minutes").fill("0")
    page.get_by_label("Seconds").fill("5")
    page.get_by_role("button", name="Create").click()

    expected = "The value supplied must be between 00:00:20 and 7.00:00:00. Actual value was 00:00:05."
    expect(page.get_by_role("alert")).to_contain_text(f"Duplicate detection window: {expected}")
    expect(page.locator("p.error")).to_have_text(expected)
    expect(page.get_by_label("Name", exact=True)).to_have_value("orders")
    expect(page.get_by_label("Seconds")).to_have_value("5")
    expect(box).to_be_checked()
    page.get_by_label("Seconds").fill("30")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_text("The queue 'orders' was created.")).to_be_visible()
    assert service.broker.catalogue.queue("orders").window == 30 * SECOND

    page.get_by_role("link", name="Send").click()
    send(page, "42")
    expect(page.locator(".notice")).to_contain_text("Sent as number 1. It was not a duplicate.")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".notice")).to_contain_text("dropped as a duplicate of number 1")

    page.get_by_role("link", name="Messages 1").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr")).to_contain_text("hello")
    page.get_by_role("link", name="Duplicates 1").click()
    page.get_by_label("Was this MessageId dropped?").fill("42")
    page.get_by_role("button", name="Find").last.click()
    expect(page.get_by_text("Yes: 42 was dropped 1 time.")).to_be_visible()
    page.get_by_role("link", name="number 1", exact=True).click()
    expect(page.locator("#panel")).to_contain_text("MessageId42")
    expect(page.locator("#panel pre")).to_have_text("hello")

    service.run(service.broker.receive(Address("orders"), 1, mode=Mode.RECEIVE_AND_DELETE))
    go(page, service, "entity/duplicates?path=orders")
    expect(page.locator("tbody tr")).to_contain_text("number 1 already consumed")


def test_the_window_is_changed_and_the_box_is_not(page: Page, service: Served) -> None:
    queue = Queue(name="changed", requires_duplicate_detection=True)
    service.run(service.broker.change(lambda catalogue, now: catalogue.create(queue, now)))
    go(page, service, "entity?path=changed")
    page.get_by_role("link", name="Properties").click()
    box = page.get_by_label("Enable duplicate detection")
    expect(box).to_be_checked()
    expect(box).to_be_disabled()
    expect(page.get_by_text("Chosen at creation: it cannot be changed.").first).to_be_visible()
    page.get_by_label("Or as ISO 8601").fill("PT1H")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("The changes are in effect.")).to_be_visible()
    expect(page.get_by_label("Hours")).to_have_value("1")
    expect(page.get_by_label("Minutes")).to_have_value("0")
    changed = service.broker.catalogue.queue("changed")
    assert (changed.window, changed.requires_duplicate_detection) == (HOUR, True)


def test_a_topic_with_a_filtered_subscription_takes_what_matches(page: Page, service: Served) -> None:
    page.get_by_role("link", name="Create topic").click()
    page.get_by_label("Name", exact=True).fill("prices")
    page.get_by_role("button", name="Create").click()
    page.get_by_role("link", name="Create subscription").click()
    page.get_by_label("Name", exact=True).fill("high")
    expect(page.get_by_label("Expression")).to_be_hidden()
    page.get_by_label("Messages to take").select_option("sql")
    page.get_by_label("Expression").fill("price >")
    page.get_by_role("button", name="Create").click()
    expect(page.locator("p.error")).to_contain_text("The filter cannot be read")
    page.get_by_label("Expression").fill("price > 100")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_text("SQL filter price > 100")).to_be_visible()

    go(page, service, "entity/send?path=prices")
    send(page, "low", "price: 50")
    expect(page.locator(".notice")).to_contain_text("Sent as number 1.")
    send(page, "high", "price: 150")
    expect(page.locator(".notice")).to_contain_text("Sent as number 2.")
    go(page, service, "entity/messages?path=prices/Subscriptions/high")
    expect(page.locator("tbody th")).to_have_text(["high"])


async def _dead(broker: Broker, name: str, count: int) -> None:
    queue = Queue(name=name, requires_duplicate_detection=True)
    await broker.change(lambda catalogue, now: catalogue.create(queue, now))
    await broker.send(name, [message(f"id-{number}", f"body {number}".encode()) for number in range(1, count + 1)])
    await broker.counts(name)
    for received in await broker.receive(Address(name), count, wait=20):
        assert received.message.token is not None
        dead = Settlement(Action.DEAD_LETTER, received.message.token, reason="Rejected", description="Come back later.")
        await broker.settle(Address(name), [dead])


def test_dead_letters_are_resubmitted_though_their_ids_are_remembered(page: Page, service: Served) -> None:
    service.run(_dead(service.broker, "letters", 3))
    go(page, service, "entity?path=letters")
    page.get_by_role("link", name="Dead letters 3").click()
    expect(page.locator("tbody tr").first).to_contain_text("Rejected")
    everything = page.get_by_label("Choose all on this page")
    page.get_by_label("Choose number 1").check()
    assert everything.evaluate("box => box.indeterminate")
    everything.check()
    expect(page.get_by_label("Choose number 3")).to_be_checked()
    page.get_by_label("Choose number 3").uncheck()
    page.get_by_role("button", name="Resubmit").click()
    expect(page.get_by_text("2 dead letters resubmitted.")).to_be_visible()
    expect(page.locator("tbody th")).to_have_text(["id-3"])
    page.get_by_role("link", name="Messages 2").click()
    expect(page.locator("tbody th")).to_have_text(["id-1", "id-2"])
    go(page, service, "entity/duplicates?path=letters")
    expect(page.get_by_text("No duplicate was dropped")).to_be_visible()


def test_dead_letters_are_downloaded_and_discarded(page: Page, service: Served) -> None:
    service.run(_dead(service.broker, "waste", 2))
    go(page, service, "entity/messages?path=waste&of=dead-letters")
    page.get_by_label("Choose all on this page").check()
    with page.expect_download() as downloading:
        page.get_by_role("button", name="Download").click()
    document = json.loads(downloading.value.path().read_text())
    assert [each["Body"] for each in document["messages"]] == ["body 1", "body 2"]
    page.get_by_role("button", name="Discard…").click()
    page.get_by_role("link", name="Cancel").click()
    expect(page.locator("tbody tr")).to_have_count(2)
    page.get_by_label("Choose number 2").check()
    page.get_by_role("button", name="Discard…").click()
    page.get_by_role("button", name="Discard 1 dead letter").click()
    expect(page.get_by_text("1 dead letter discarded.")).to_be_visible()
    expect(page.locator("tbody th")).to_have_text(["id-1"])


def test_a_panel_shows_a_message_beside_the_table(page: Page, service: Served) -> None:
    service.run(_dead(service.broker, "shelf", 3))
    go(page, service, "entity/messages?path=shelf&of=dead-letters")
    expect(page.locator("#panel")).to_be_hidden()
    page.evaluate("window.stayed = true")
    page.get_by_role("link", name="id-2").press("Enter")
    panel = page.locator("#panel")
    expect(panel).to_be_focused()
    expect(panel).to_contain_text("DeadLetterErrorDescriptionCome back later.")
    expect(panel.locator("pre")).to_have_text("body 2")
    expect(page.locator("tr.current")).to_contain_text("id-2")
    page.get_by_role("link", name="id-3").click()
    expect(panel.locator("pre")).to_have_text("body 3")
    assert "show=3" in page.url
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    expect(page.get_by_role("link", name="id-3")).to_be_focused()
    assert page.evaluate("window.stayed")
    page.get_by_label("MessageId", exact=True).fill("id-1")
    page.get_by_role("button", name="Find").last.click()
    expect(page.locator("tbody th")).to_have_text(["id-1"])


def test_duplicates_are_followed_and_found_in_all_entities(page: Page, service: Served) -> None:
    queue = Queue(name="followed", requires_duplicate_detection=True)
    service.run(service.broker.change(lambda catalogue, now: catalogue.create(queue, now)))
    service.run(service.broker.send("followed", [message("echo")]))
    go(page, service, "duplicates")
    page.evaluate("window.stayed = true")
    page.get_by_label("Follow").check()
    service.time.advance(30)
    service.run(service.broker.send("followed", [message("echo")]))
    row = page.locator("tbody tr").filter(has_text="echo").first
    expect(row).to_contain_text("followed")
    expect(row).to_contain_text("30 s")
    assert page.evaluate("window.stayed")
    page.get_by_label("Find a MessageId").fill("echo")
    page.get_by_label("Find a MessageId").press("Enter")
    expect(page.get_by_role("heading", name="MessageId echo")).to_be_visible()
    expect(page.locator("tbody").first).to_contain_text("followed")
    page.locator("tbody").first.get_by_role("link", name="1", exact=True).click()
    expect(page.locator("#panel")).to_contain_text("MessageIdecho")


def test_figures_and_plot_follow_what_happens(page: Page, service: Served) -> None:
    queue = Queue(name="watched", requires_duplicate_detection=True)
    service.run(service.broker.change(lambda catalogue, now: catalogue.create(queue, now)))
    go(page, service, "entity?path=watched")
    expect(page.locator("dd [data-value=new]")).to_have_text("0")
    service.run(service.broker.send("watched", [message("1"), message("2"), message("1")]))
    service.run(service.broker.counts("watched"))
    service.time.advance(4)
    expect(page.locator("dd [data-value=new]")).to_have_text("2")
    expect(page.locator("dd [data-value=duplicates]")).to_have_text("1")
    expect(page.locator("[data-value=incoming-rate]")).to_have_text(re.compile(r"0\.[1-9]"))
    expect(page.locator("polygon.duplicates")).to_have_count(1)

    def edges(name: str) -> list[float]:
        points = page.locator(f"polygon.{name}").get_attribute("points")
        assert points is not None
        return [float(point.partition(",")[2]) for point in points.split()]

    # Duplicates lie on top of new messages and do not cover them.
    assert min(edges("duplicates")) < min(edges("new"))
    cursor = page.get_by_label("Time in the plot")
    cursor.focus()
    page.keyboard.press("End")
    readout = page.locator("[data-readout]")
    for _ in range(5):
        if "incoming 0/s" not in readout.inner_text():
            break
        page.keyboard.press("ArrowLeft")
    expect(readout).to_contain_text("incoming 1.5/s, new 1/s, duplicates 0.5/s (33.3%), outgoing 0/s")
    # Nothing is known about the time before the queue was created.
    cursor.hover(position={"x": 100, "y": 50})
    expect(readout).to_contain_text("unknown")
    page.get_by_role("link", name="24 hours").click()
    expect(page.get_by_role("link", name="24 hours")).to_have_attribute("aria-current", "true")
    expect(page.locator("[data-value=incoming-sum]")).to_have_text("3 in 24 hours")


async def _teams(broker: Broker) -> None:
    for name, count in (("team/few", 1), ("team/many", 3)):
        queue = Queue(name=name, requires_duplicate_detection=True)
        await broker.change(lambda catalogue, now, queue=queue: catalogue.create(queue, now))  # type: ignore[misc]
        await broker.send(name, [message(f"{number}") for number in range(count)])
        await broker.counts(name)


def test_the_overview_is_dense_sorted_and_filtered_and_shows_a_dead_consumer(page: Page, service: Served) -> None:
    service.run(_teams(service.broker))
    go(page, service, "")
    page.get_by_label("Name contains").fill("team/")
    page.get_by_role("button", name="Filter").click()
    names = page.locator("tbody th")
    expect(names).to_have_text(["team/few", "team/many"])
    page.get_by_role("link", name="Backlog").click()
    expect(names).to_have_text(["team/many", "team/few"])
    expect(page.get_by_role("columnheader", name="Backlog")).to_have_attribute("aria-sort", "descending")
    row = page.locator("tbody tr").first
    box = row.bounding_box()
    assert box is not None
    assert 26 <= box["height"] <= 30
    # Messages wait, and nobody receives them. Then somebody does, and the page shows it without a reload.
    queue = service.broker.catalogue.queue("team/many")
    consumers = page.locator(f'[data-value="{queue.id}-consumers"]')
    expect(consumers).to_have_text("none")
    expect(consumers).to_have_attribute("data-state", "bad")
    service.loop.call_soon_threadsafe(service.broker.consumers.attach, queue.id)
    expect(consumers).to_have_text("1")
    expect(consumers).to_have_attribute("data-state", "good")
    names.first.get_by_role("link").click()
    expect(page.get_by_role("heading", name="team/many")).to_be_visible()
    page.get_by_role("navigation", name="Breadcrumbs").get_by_role("link", name="Overview").click()
    expect(page.get_by_role("heading", name="Overview", exact=True)).to_be_visible()


def test_a_page_shows_that_the_broker_is_gone_or_the_session_has_ended(
    context: BrowserContext, service: Served
) -> None:
    page = context.new_page()
    sign_in(page, service)
    context.set_offline(True)
    expect(page.get_by_text("The broker does not answer.")).to_be_visible()
    context.set_offline(False)
    expect(page.get_by_text("The broker does not answer.")).to_be_hidden()
    service.time.advance(IDLE / SECOND)
    expect(page.get_by_text("Your session has ended.")).to_be_visible()
    page.get_by_role("link", name="Sign in again").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_no_page_runs_what_senders_write(page: Page, service: Served) -> None:
    for address in PAGES:
        go(page, service, address)
        assert page.locator("img, body script, iframe").count() == 0
    go(page, service, "entity/messages?path=nasty&of=dead-letters")
    expect(page.locator("tbody th .id")).to_have_text(NASTY)


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.release)])
def test_every_page_fits_a_phone_and_can_be_read(browser: Browser, service: Served, scheme: str) -> None:
    context = browser.new_context(
        viewport={"width": 360, "height": 740},
        color_scheme=scheme,  # type: ignore[arg-type]
        is_mobile=True,
        has_touch=True,
    )
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    sign_in(page, service)
    problems, tall = {}, {}
    for address in PAGES:
        go(page, service, address)
        for summary in page.locator("summary").all():
            summary.click()
        assert page.evaluate("document.documentElement.scrollWidth") == 360, address
        assert page.locator("h1").count() == 1, address
        # A row of a table takes two lines, and the tabs take one.
        heights = page.locator(".dense tbody tr, .tabs ul").evaluate_all("each => each.map((one) => one.offsetHeight)")
        tall[address] = max(heights, default=0)
        problems[address] = hard_to_use(page)
    assert {address: found for address, found in problems.items() if found} == {}
    assert {address: height for address, height in tall.items() if height > 66} == {}
    context.close()


def test_the_keyboard_reaches_everything_and_the_focus_is_visible(page: Page, service: Served) -> None:
    go(page, service, "create?kind=queue")
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to the content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator("main").get_by_role("link", name="Overview")).to_be_focused()
    page.keyboard.press("Tab")
    name = page.get_by_label("Name", exact=True)
    expect(name).to_be_focused()
    assert name.evaluate("element => getComputedStyle(element).outlineStyle") == "solid"
    page.keyboard.type("by-keyboard")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    expect(page.get_by_label("Enable duplicate detection")).to_be_checked()
    page.keyboard.press("Tab")
    expect(page.get_by_label("Days")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_text("The queue 'by-keyboard' was created.")).to_be_visible()
    assert service.broker.catalogue.queue("by-keyboard").requires_duplicate_detection


def test_everything_works_without_scripts(browser: Browser, service: Served) -> None:
    context = browser.new_context(java_script_enabled=False)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    sign_in(page, service)
    expect(page.get_by_text("The plot needs JavaScript.")).to_be_visible()
    expect(page.locator("[data-value=incoming-rate]")).to_have_text(re.compile(r"\d"))
    page.get_by_role("link", name="Create queue").click()
    page.get_by_label("Name", exact=True).fill("plain")
    page.get_by_label("Enable duplicate detection").check()
    page.get_by_label("Minutes").fill("20")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_text("a MessageId is remembered for 20 minutes")).to_be_visible()
    page.get_by_role("link", name="Delete queue").click()
    page.get_by_label("Type the name of the queue to delete it").fill("plain")
    page.get_by_role("button", name="Delete the queue").click()
    expect(page.get_by_text("The queue 'plain' was deleted.")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    context.close()


def test_a_wrong_key_and_then_the_right_one(context: BrowserContext, service: Served) -> None:
    page = context.new_page()
    go(page, service, "entity?path=news")
    form = page.get_by_role("form", name="Or with a key")
    form.get_by_label("Name of the rule").fill(ROOT.name)
    form.get_by_label("Key").fill("wrong")
    form.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("No rule with this name has this key.")
    expect(form.get_by_label("Key")).to_have_value("")
    form.get_by_label("Key").fill(ROOT.primary_key)
    form.get_by_role("button", name="Sign in").click()
    # Signing in leads to the requested page.
    expect(page.get_by_role("heading", name="news")).to_be_visible()
    assert "root" not in page.url


def test_another_site_gets_neither_the_cookie_nor_a_frame(
    context: BrowserContext, service: Served, tmp_path: Path
) -> None:
    page = context.new_page()
    sign_in(page, service)
    there = f"http://127.0.0.1:{service.port}/"
    evil = tmp_path / "evil.html"
    evil.write_text(
        f'<form method="post" action="{service.url}$portal/create"><input name="kind" value="queue">'
        f'<input name="name" value="evil"><button>Win</button></form><iframe src="{service.url}$portal/"></iframe>'
    )
    page.goto(evil.as_uri())
    frame = page.frames[-1]
    assert "Overview" not in frame.content()
    page.get_by_role("button", name="Win").click()
    expect(page.get_by_text("The form was sent from another site.")).to_be_visible()
    assert service.broker.catalogue.find("evil") is None
    # For a browser, another host name is another site.
    page.goto(f"{there}$portal/")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
