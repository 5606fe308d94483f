"""Splitting long lists into pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from oncebus.portal.markup import Markup, tag
from oncebus.portal.wording import number

T = TypeVar("T")


def page_of(items: Sequence[T], here: int, size: int) -> Sequence[T]:
    """Return the items of a page; the first page is 0."""
    return items[here * size : (here + 1) * size]


def page_links(total: int, here: int, size: int, address: Callable[[int], str]) -> Markup | None:
    """Return links to the neighbouring pages; nothing if there is one page only."""
    links = []
    if here > 0:
        links.append(tag("a", "Before", href=address(min(here - 1, max(total - 1, 0) // size)), rel="prev"))
    if (here + 1) * size < total:
        links.append(tag("a", "Next", href=address(here + 1), rel="next"))
    if not links:
        return None
    explanation = f"{number(min(here * size + 1, total))} to {number(min((here + 1) * size, total))} of {number(total)}"
    return tag("nav", tag("span", explanation), links, class_="pages", aria_label="Pages")
