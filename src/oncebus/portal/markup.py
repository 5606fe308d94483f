"""HTML, put together from elements. Every text is escaped on its way in: there is no other way for one to get there.

Ids, labels and bodies are what strangers sent. `visible` shows what in them could not be seen, or would make the text
around it look like something else.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

# Controls, marks that turn the direction of the text around them, halves of surrogate pairs, and what has no width.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb]"
)
_VOID = frozenset({"br", "hr", "img", "input", "link", "meta"})

Attribute = str | int | bool | None


class Markup(str):
    """HTML that stands as it is."""

    __slots__ = ()


Content = str | int | None | Iterable["Content"]
"""What an element may hold: markup as it is, anything else as text."""


def tag(name: str, /, *content: Content, **attributes: Attribute) -> Markup:
    """An element. `class_` and `for_` lose their underscore, inside a name it is a hyphen; True is an attribute without
    a value, False and None are none."""
    opening = "".join([f"<{name}", *(_attribute(key, value) for key, value in attributes.items()), ">"])
    return Markup(opening if name in _VOID else f"{opening}{joined(content)}</{name}>")


def joined(content: Content) -> Markup:
    """Several pieces, one behind the other."""
    if isinstance(content, Markup):
        return content
    if content is None:
        return Markup()
    if isinstance(content, str | int):
        return Markup(html.escape(visible(str(content))))
    return Markup("".join(joined(each) for each in content))


def foreign(text: str, *, class_: str = "foreign") -> Markup:
    """A text that a stranger chose, apart from what stands around it whichever way it is written."""
    return tag("bdi", text, class_=class_) if text else tag("span", "(empty)", class_="none")


def visible(text: str) -> str:
    """The text, with a name in place of each character that could not be seen. Line breaks and tabs stay."""
    return _UNSEEN.sub(lambda match: f"‹U+{ord(match[0]):04X}›", text) if not _is_plain(text) else text


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _attribute(name: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    written = name.rstrip("_").replace("_", "-")
    if value is True:
        return f" {written}"
    return f' {written}="{html.escape(_kept(str(value)))}"'


def _kept(text: str) -> str:
    """As it is: what stands in a field is sent back. Only what cannot be written at all is replaced."""
    return re.sub("[\x00\ud800-\udfff]", "\ufffd", text)
