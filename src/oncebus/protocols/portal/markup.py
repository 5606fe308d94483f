"""Builds HTML from elements. Every text is escaped when it is added; there is no way to add unescaped text.

Ids, labels and bodies are untrusted. `visible` makes invisible characters visible, and those that would change how the
text around them looks.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

# Control characters, marks that change the direction of text, halves of surrogate pairs, zero-width characters.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb]"
)
_VOID = frozenset({"br", "hr", "img", "input", "link", "meta"})

Attribute = str | int | bool | None


class Markup(str):
    """HTML that is already escaped."""

    __slots__ = ()


Content = str | int | None | Iterable["Content"]
"""The content of an element: `Markup` stays as it is, anything else is escaped."""


def tag(name: str, /, *content: Content, **attributes: Attribute) -> Markup:
    """Return an element.

    A trailing underscore in an attribute's name is dropped; other underscores become hyphens. The value True makes an
    attribute without a value; False and None leave the attribute out.
    """
    opening = "".join([f"<{name}", *(_attribute(key, value) for key, value in attributes.items()), ">"])
    return Markup(opening if name in _VOID else f"{opening}{join_markup(content)}</{name}>")


def join_markup(content: Content) -> Markup:
    """Return several pieces, concatenated."""
    if isinstance(content, Markup):
        return content
    if content is None:
        return Markup()
    if isinstance(content, str | int):
        return Markup(html.escape(visible(str(content))))
    return Markup("".join(join_markup(each) for each in content))


def foreign(text: str, *, class_: str = "foreign") -> Markup:
    """Return untrusted text in an element of its own, so that its direction does not affect the text around it."""
    return tag("bdi", text, class_=class_) if text else tag("span", "(empty)", class_="none")


def visible(text: str) -> str:
    """Return the text with each invisible character replaced by its name. Line breaks and tabs stay."""
    return _UNSEEN.sub(lambda match: f"‹U+{ord(match[0]):04X}›", text) if not _is_plain(text) else text


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _attribute(name: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    written = name.rstrip("_").replace("_", "-")
    if value is True:
        return f" {written}"
    return f' {written}="{html.escape(_encodable(str(value)))}"'


def _encodable(text: str) -> str:
    """Return the value of a form field, unchanged except for characters that cannot be encoded.

    The browser sends it back.
    """
    return re.sub("[\x00\ud800-\udfff]", "\ufffd", text)
