"""The frame around every page, and its navigation: breadcrumbs, tabs, and the links between pages of a long list."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from starlette.responses import Response

from oncebus.portal.links import STAMPED, link
from oncebus.portal.markup import Content, Markup, joined, tag
from oncebus.portal.wording import number

T = TypeVar("T")

SAFETY = {
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
PRIVATE = {"cache-control": "no-store"}


@dataclass(frozen=True, slots=True)
class PageFrame:
    """The namespace and the authorization rule that every page shows; empty if nobody is signed in.

    `seal` is the seal of the sign-out form.
    """

    namespace: str = ""
    tier: str = ""
    rule: str = ""
    seal: str = ""
    links: Sequence[tuple[str, str]] = ()


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
    body = tag("body", skip, _header(frame, here), main, _footer())
    written = joined([Markup("<!doctype html>\n"), tag("html", head, body, lang="en")])
    return Response(written.encode(), status, {**SAFETY, **PRIVATE}, "text/html; charset=utf-8")


def trail(*steps: tuple[str, str]) -> Markup:
    """Return the breadcrumbs: titles and addresses of the pages above this one."""
    items = [tag("li", tag("a", title, href=address)) for title, address in steps]
    return tag("nav", tag("ol", items), class_="trail", aria_label="Way back")


def tabs(label: str, here: str, listed: Sequence[tuple[str, str, str]]) -> Markup:
    """Return the tabs of related pages, each given as name, title and address."""
    items = [
        tag("li", tag("a", title, href=address, aria_current="page" if name == here else None))
        for name, title, address in listed
    ]
    return tag("nav", tag("ul", items), class_="tabs", aria_label=label)


def page_of(items: Sequence[T], here: int, size: int) -> Sequence[T]:
    """Return the items of a page; the first page is 0."""
    return items[here * size : (here + 1) * size]


def page_links(total: int, here: int, size: int, address: Callable[[int], str]) -> Markup | None:
    """Return links to the neighbouring pages; None if there is only one page."""
    links = []
    if here > 0:
        links.append(tag("a", "Before", href=address(min(here - 1, max(total - 1, 0) // size)), rel="prev"))
    if (here + 1) * size < total:
        links.append(tag("a", "Next", href=address(here + 1), rel="next"))
    if not links:
        return None
    explanation = f"{number(min(here * size + 1, total))} to {number(min((here + 1) * size, total))} of {number(total)}"
    return tag("nav", tag("span", explanation), links, class_="pages", aria_label="Pages")


def _header(frame: PageFrame, here: str) -> Markup:
    brand = tag("a", tag("span", "Oncebus", class_="brand-name"), href=link(), class_="brand")
    if not frame.seal:
        return tag("header", tag("div", brand, class_="bar"))
    place = tag("p", frame.namespace, " ", tag("span", frame.tier, class_="tier"), class_="place")
    items = [
        tag("li", tag("a", title, href=address, aria_current="page" if address == here else None))
        for title, address in frame.links
    ]
    # Only a signed-in visitor has a seal, so only their pages have this form.
    leave = tag(
        "form",
        tag("input", type="hidden", name="seal", value=frame.seal),
        tag("span", frame.rule, class_="who"),
        tag("button", "Sign out", type="submit", class_="quiet"),
        method="post",
        action=link("sign-out"),
        class_="leave",
    )
    nav = tag("nav", tag("ul", items), class_="menu", aria_label="Portal")
    return tag("header", tag("div", brand, place, leave, class_="bar"), nav)


def _silence(live: str | None) -> Markup | None:
    """Return the notice that the script shows when figures stop arriving."""
    if live is None:
        return None
    again = tag("a", "Sign in again", href=link("sign-in"))
    ended = tag("p", "Your session has ended. ", again, ".", class_="notice warning", data_ended=True, hidden=True)
    old = "The broker does not answer. The figures are old."
    lost = tag("p", old, class_="notice warning", data_lost=True, hidden=True)
    return tag("div", ended, lost, role="status")


def _footer() -> Markup:
    return tag("footer", tag("p", "Times are UTC."))
