"""The frame around every page, and its navigation: breadcrumbs, tabs, and the links between pages of a long list."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from starlette.responses import RedirectResponse, Response

from oncebus.protocols.portal.links import STAMPED, link
from oncebus.protocols.portal.markup import Attribute, Content, Markup, join_markup, tag
from oncebus.protocols.portal.wording import number

T = TypeVar("T")

LONGEST_ID = 128
"""The longest MessageId, in characters."""

PUBLIC = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    # Not 'no-referrer': browsers would then send no origin with a form either.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""The headers of every response: nothing but this portal's own files is loaded, and no other site may embed it."""
PRIVATE = {**PUBLIC, "cache-control": "no-store"}


@dataclass(frozen=True, slots=True)
class PageFrame:
    """The namespace and the authorization rule that every page shows; empty if nobody is signed in.

    `seal` is the seal of the sign-out form. `searches` says whether the header has the search for a MessageId.
    """

    namespace: str = ""
    tier: str = ""
    rule: str = ""
    seal: str = ""
    links: Sequence[tuple[str, str]] = ()
    searches: bool = False


@dataclass(frozen=True, slots=True)
class Tab:
    """A tab. `is_bad` says that any count but 0 is a reason to look."""

    name: str
    title: str
    address: str
    count: int | None = None
    is_bad: bool = False


def page(
    frame: PageFrame,
    title: str,
    *content: Content,
    status: int = 200,
    notices: Iterable[str] = (),
    live: str | None = None,
    here: str = "",
) -> Response:
    """Return a complete page. With `live`, the script polls that address for new figures."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", " – ".join(part for part in (title, frame.namespace, "Oncebus") if part)),
        tag("link", rel="stylesheet", href=STAMPED["portal.css"]),
        tag("link", rel="icon", href=STAMPED["portal.svg"], type="image/svg+xml"),
        tag("script", src=STAMPED["portal.js"], defer=True),
    )
    notes = [tag("p", text, class_="notice", role="status") for text in notices]
    main = tag("main", notes, _silence(live), content, id="main", tabindex="-1", data_live=live)
    skip = tag("a", "Skip to the content", href="#main", class_="skip")
    body = tag("body", skip, _header(frame, here), main, tag("footer", tag("p", "Times are UTC.")))
    written = join_markup([Markup("<!doctype html>\n"), tag("html", head, body, lang="en")])
    return Response(written.encode(), status, PRIVATE, "text/html; charset=utf-8")


def redirect(address: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return a redirect to a page of the portal."""
    return RedirectResponse(address, 303, {**PRIVATE, **(headers or {})})


def top(title: Content, *steps: tuple[str, str], actions: Content = None) -> Markup:
    """Return the top of a page: the breadcrumbs to it, its title, and the actions on the thing it shows."""
    crumbs = [tag("li", tag("a", name, href=address)) for name, address in steps]
    way = tag("nav", tag("ol", crumbs), class_="trail", aria_label="Breadcrumbs") if crumbs else None
    buttons = tag("div", actions, class_="actions") if actions else None
    return tag("div", way, tag("div", tag("h1", title), buttons, class_="title"), class_="top")


def section_head(title: str, action: Content = None) -> Markup:
    """Return the heading of a section, with the action beside it."""
    buttons = tag("div", action, class_="actions") if action else None
    return tag("div", tag("h2", title), buttons, class_="title")


def tabs(label: str, here: str, listed: Sequence[Tab]) -> Markup:
    """Return the tabs of related pages."""
    links: list[tuple[Content, str, bool]] = []
    for each in listed:
        title: list[Content] = [each.title]
        if each.count is not None:
            state = "bad" if each.is_bad and each.count else None
            title += [" ", tag("span", number(each.count), class_="count", data_state=state)]
        links.append((title, each.address, each.name == here))
    return _navigation("tabs", label, links)


def ranges(here: str, titles: Mapping[str, tuple[str, object]], address: Callable[[str], str], label: str) -> Markup:
    """Return links to choose a range of time. `titles` has the title of each range by its name, and what it means."""
    links = [(title, address(name), name == here) for name, (title, _) in titles.items()]
    return _navigation("ranges", label, links, current="true")


def _navigation(class_: str, label: str, links: Iterable[tuple[Content, str, bool]], current: str = "page") -> Markup:
    """Return links, each given with its title, its address, and whether it leads to where the visitor is."""
    items = [
        tag("li", tag("a", title, href=address, aria_current=current if is_here else None))
        for title, address, is_here in links
    ]
    return tag("nav", tag("ul", items), class_=class_, aria_label=label)


def tile(title: str, value: Content, note: Content, state: str | None = None) -> Markup:
    """Return a large figure with a title and a note."""
    large = tag("p", value, class_="large", data_state=state)
    return tag("div", tag("h2", title), large, tag("p", note, class_="note"), class_="tile")


def facts(rows: Iterable[tuple[Content, Content]], *, class_: str = "facts") -> Markup:
    """Return a list of names, each with its value."""
    return tag("dl", [tag("div", tag("dt", name), tag("dd", value)) for name, value in rows], class_=class_)


def follow_box(region: str, *, is_on: bool = False) -> Markup:
    """Return the box that makes the script read a region of the page again every two seconds."""
    box = tag("input", type="checkbox", id="follow", data_follow=region, checked=is_on)
    return tag("div", box, tag("label", "Follow", for_="follow"), class_="check", data_scripted=True, hidden=True)


def empty(text: str) -> Markup:
    """Return the notice in place of a list that has no items."""
    return tag("div", tag("p", text), class_="empty")


def page_of(items: Sequence[T], here: int, size: int) -> Sequence[T]:
    """Return the items of a page; the first page is 0."""
    return items[here * size : (here + 1) * size]


def page_links(total: int, here: int, size: int, address: Callable[[int], str]) -> Markup | None:
    """Return links to the neighbouring pages; None if there is only one page."""
    links: list[Content] = []
    if here > 0:
        links.append(tag("a", "Before", href=address(min(here - 1, max(total - 1, 0) // size)), rel="prev"))
    if (here + 1) * size < total:
        links.append(tag("a", "Next", href=address(here + 1), rel="next"))
    if links:
        here_is = f"{number(min(here * size + 1, total))} to {number(min((here + 1) * size, total))} of {number(total)}"
        links.insert(0, tag("span", here_is))
    return further(links)


def further(links: Sequence[Content]) -> Markup | None:
    """Return the links from one part of a long list to others; None if there are none."""
    return tag("nav", links, class_="pages", aria_label="Pages") if links else None


def _header(frame: PageFrame, here: str) -> Markup:
    brand = tag("a", tag("span", "Oncebus", class_="brand-name"), href=link(), class_="brand")
    if not frame.seal:
        return tag("header", tag("div", brand, class_="bar"))
    place = tag("span", frame.namespace, " ", tag("span", frame.tier, class_="tier"), class_="place")
    # Only a signed-in visitor has a seal, so only their pages have this form.
    leave = tag(
        "form",
        tag("input", type="hidden", name="seal", value=frame.seal),
        tag("span", frame.rule, class_="who", title="The rule you signed in with"),
        tag("button", "Sign out", type="submit", class_="quiet"),
        method="post",
        action=link("sign-out"),
        class_="leave",
    )
    nav = _navigation("menu", "Portal", [(title, address, address == here) for title, address in frame.links])
    search = None
    if frame.searches:
        title = "Find a MessageId"
        search = find_box(link("search"), "message-id", title, "Find", required=True, maxlength=LONGEST_ID)
    return tag("header", tag("div", brand, place, nav, search, leave, class_="bar"))


def find_box(
    address: str, name: str, title: str, verb: str, *brought: Content, label: str | None = None, **others: Attribute
) -> Markup:
    """Return a small form that searches the page at `address` for the text in one field."""
    box = tag(
        "input",
        type="search",
        name=name,
        aria_label=title,
        placeholder=title,
        autocomplete="off",
        autocapitalize="none",
        spellcheck="false",
        **others,
    )
    find = tag("button", verb, type="submit", class_="quiet")
    return tag("form", brought, box, find, method="get", action=address, class_="find", role="search", aria_label=label)


def _silence(live: str | None) -> Markup | None:
    """Return the notice that the script shows when figures stop arriving."""
    if live is None:
        return None
    again = tag("a", "Sign in again", href=link("sign-in"))
    ended = tag("p", "Your session has ended. ", again, ".", class_="notice warning", data_ended=True, hidden=True)
    old = "The broker does not answer. The figures are old."
    lost = tag("p", old, class_="notice warning", data_lost=True, hidden=True)
    return tag("div", ended, lost, role="status")
