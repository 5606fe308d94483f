"""Untrusted content is shown as text, and never run."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncebus import amqp
from oncebus.amqp.types import Described, Symbol, Timestamp
from oncebus.protocols.http.rendering import Allowance
from oncebus.protocols.portal.contents import LONGEST_HEX, LONGEST_TEXT, label_of, properties_list, show_body
from oncebus.protocols.portal.markup import Markup, foreign, join_markup, tag, visible
from oncebus.protocols.portal.wording import rate, size_in_words

NASTY = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</textarea></title><svg onload=alert(1)>",
    "&lt;b&gt;",
    "javascript:alert(1)",
    "{{7*7}}",
]


class Seen(HTMLParser):
    """The elements, attributes and text that a browser would see in some markup."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: dict[str, str | None] = {}
        self.text = ""
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= dict(attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.text())
def test_any_text_stays_text(text: str) -> None:
    seen = Seen(tag("p", text, ["(", text, ")"]))
    assert seen.tags == ["p"]
    assert seen.text == f"{visible(text)}({visible(text)})"


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_any_text_stays_in_its_attribute(text: str) -> None:
    seen = Seen(tag("input", value=text, data_x=text))
    assert seen.tags == ["input"]
    assert seen.attributes == {"value": text, "data-x": text}


@pytest.mark.parametrize("text", NASTY)
def test_nasty_text_is_shown_as_it_is(text: str) -> None:
    seen = Seen(join_markup([foreign(text), tag("a", text, href="/", title=text)]))
    assert seen.tags == ["bdi", "a"]
    assert seen.text == text + text


def test_markup_is_not_escaped_twice() -> None:
    assert tag("p", tag("b", "a & b"), None, [Markup("<hr>"), 3]) == "<p><b>a &amp; b</b><hr>3</p>"
    assert tag("br", class_="x", hidden=True, id=None, disabled=False) == '<br class="x" hidden>'


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("user\u202etxt.exe", "user‹U+202E›txt.exe"),
        ("a\x00b\x1b[31m", "a‹U+0000›b‹U+001B›[31m"),
        ("zero\u200bwidth\ufeff", "zero‹U+200B›width‹U+FEFF›"),
        ("half \ud800", "half ‹U+D800›"),
        ("ödeme ☕ 東京 \t\n", "ödeme ☕ 東京 \t\n"),
    ],
)
def test_invisible_characters_are_named(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert join_markup(text).encode()


def body(content: amqp.Body) -> Seen:
    return Seen(show_body(amqp.encode_body(content), Allowance()))


@pytest.mark.parametrize("text", NASTY)
def test_bodies_labels_and_properties_are_shown_as_text(text: str) -> None:
    assert text in body(text.encode()).text
    assert text in body(amqp.AmqpValue(text)).text
    assert set(body(text.encode()).tags) == {"div", "p", "pre", "bdi"}
    head, _ = amqp.encode_message(amqp.Properties(subject=text, reply_to=text), {text: text, "n": 3}, b"")
    seen = Seen(properties_list(head, Allowance()))
    assert seen.text.count(text) == 4
    assert set(seen.tags) == {"div", "dl", "dt", "dd", "bdi", "h3"}
    assert label_of(head) == text


def test_binary_bodies_are_shown_in_hexadecimal() -> None:
    seen = body(b"\x00\xffabc")
    assert "5 bytes in hexadecimal" in seen.text
    assert "0000  00 ff 61 62 63" in seen.text
    assert "..abc" in seen.text
    assert "hexadecimal" in body(b"bell\x07").text
    assert "Body: empty" in body(b"").text
    assert "Body that cannot be read" in Seen(show_body(b"\x00\x53\x75\xff", Allowance())).text


def test_long_bodies_are_truncated() -> None:
    seen = body("é".encode() * 1_000_000)
    assert f"2,000,000 bytes, the first {LONGEST_TEXT:,} characters" in seen.text
    assert seen.text.count("é") == LONGEST_TEXT
    seen = body(b"\xff" * 1_000_000)
    assert f"1,000,000 bytes in hexadecimal, the first {LONGEST_HEX:,}" in seen.text
    assert seen.text.count("ff") == LONGEST_HEX


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"a": [1, 2.5, None, True]}, '"a"'),
        (Timestamp(0), "1970-01-01T00:00:00.000000Z"),
        (Timestamp(1 << 62), str(1 << 62)),
        ([b"\x01", Symbol("s")], "0x01"),
        (Described(Symbol("x:y"), "inner"), "inner"),
    ],
)
def test_values_of_every_type_are_shown(value: object, shown: str) -> None:
    assert shown in body(amqp.AmqpValue(value)).text
    assert shown in body(amqp.AmqpSequence([value])).text
    assert "x:y" not in body(amqp.AmqpSequence([value])).text


def test_unreadable_heads_are_reported() -> None:
    broken = b"\x00\x53\x73\xd0\x00"
    assert "The properties cannot be read" in Seen(properties_list(broken, Allowance())).text
    assert label_of(broken) is None


def test_many_and_long_properties_are_truncated() -> None:
    head, _ = amqp.encode_message(None, {f"p{number}": "x" * 1500 for number in range(150)}, b"")
    seen = Seen(properties_list(head, Allowance()))
    assert "50 more properties" in seen.text
    assert seen.text.count("x") < 100 * 600


def test_sizes_and_rates_in_words() -> None:
    assert [size_in_words(size) for size in (0, 1023, 1024, 1 << 40)] == ["0 bytes", "1,023 bytes", "1.0 KB", "1.0 TB"]
    assert [rate(value) for value in (0, 0.25, 99.94, 1234.5)] == ["0.0", "0.2", "99.9", "1,234"]
