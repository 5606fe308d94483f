"""The fields of forms: each with its label, a hint, and what is wrong with what was typed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from oncebus.portal.markup import Attribute, Content, Markup, tag


@dataclass(slots=True)
class Filled:
    """A form as it stands: what is in its fields, and what is wrong with some of it."""

    values: Mapping[str, str]
    errors: dict[str, str] = field(default_factory=dict)
    general: list[str] = field(default_factory=list)

    @property
    def is_wrong(self) -> bool:
        """Whether anything is."""
        return bool(self.errors or self.general)

    def value(self, name: str) -> str:
        """What is in a field."""
        return self.values.get(name, "")

    def is_on(self, name: str) -> bool:
        """Whether a box is checked."""
        return bool(self.values.get(name))


def problems(form: Filled, title: str, titles: Mapping[str, str] | None = None) -> Markup | None:
    """All that is wrong, at the top of the page, with links to the fields; `titles` are theirs."""
    if not form.is_wrong:
        return None
    known = titles or {}
    items = [
        tag("li", tag("a", f"{known[name]}: {text}" if name in known else text, href=f"#{name}"))
        for name, text in form.errors.items()
    ]
    items += [tag("li", text) for text in form.general]
    return tag("div", tag("h2", title), tag("ul", items), class_="problems", role="alert", tabindex="-1")


def text_field(
    form: Filled,
    name: str,
    label: str,
    *,
    hint: Content = None,
    type_: str = "text",
    is_fixed: bool = False,
    **attributes: Attribute,
) -> Markup:
    """One line of text, or a number."""
    box = tag(
        "input",
        id=name,
        name=name,
        type=type_,
        value=None if type_ == "password" else form.value(name),
        disabled=is_fixed,
        **_told(form, name, hint),
        **_plain_text(type_),
        **attributes,
    )
    return _field(form, name, label, box, hint)


def area(
    form: Filled, name: str, label: str, *, hint: Content = None, rows: int = 4, **attributes: Attribute
) -> Markup:
    """Several lines of text."""
    # A line break right behind the tag is not part of the text, so that one of the text's own is not lost.
    content = ["\n", form.value(name)]
    told = _told(form, name, hint)
    box = tag("textarea", content, id=name, name=name, rows=rows, **told, **_plain_text("text"), **attributes)
    return _field(form, name, label, box, hint)


def check_box(form: Filled, name: str, label: str, *, hint: Content = None, is_fixed: bool = False) -> Markup:
    """A box to check."""
    told = _told(form, name, hint)
    box = tag("input", id=name, name=name, type="checkbox", checked=form.is_on(name), disabled=is_fixed, **told)
    line = tag("div", box, tag("label", label, for_=name), class_="check")
    return tag("div", line, _hint(name, hint), _error(form, name), class_=_class(form, name))


def choice(form: Filled, name: str, label: str, options: Sequence[tuple[str, str]], *, hint: Content = None) -> Markup:
    """One of several, by value and title."""
    listed = [tag("option", title, value=value, selected=form.value(name) == value) for value, title in options]
    return _field(form, name, label, tag("select", listed, id=name, name=name, **_told(form, name, hint)), hint)


def group(legend: str, *content: Content, **attributes: Attribute) -> Markup:
    """Fields that belong together."""
    return tag("fieldset", tag("legend", legend), content, **attributes)


def button(title: str, *, class_: str | None = None, **attributes: Attribute) -> Markup:
    """What sends a form."""
    return tag("button", title, type="submit", class_=class_, **attributes)


def form_to(address: str, seal: str, *content: Content, **attributes: Attribute) -> Markup:
    """A form that changes something. The seal says that it was made here."""
    hidden = tag("input", type="hidden", name="seal", value=seal)
    return tag("form", hidden, content, method="post", action=address, **attributes)


def hidden(name: str, value: str | int) -> Markup:
    """What a form brings along unseen."""
    return tag("input", type="hidden", name=name, value=value)


def _field(form: Filled, name: str, label: str, box: Markup, hint: Content) -> Markup:
    return tag(
        "div", tag("label", label, for_=name), _hint(name, hint), box, _error(form, name), class_=_class(form, name)
    )


def _class(form: Filled, name: str) -> str:
    return "field wrong" if name in form.errors else "field"


def _hint(name: str, hint: Content) -> Markup | None:
    return tag("p", hint, id=f"{name}-hint", class_="hint") if hint else None


def _error(form: Filled, name: str) -> Markup | None:
    return tag("p", form.errors[name], id=f"{name}-error", class_="error") if name in form.errors else None


def _told(form: Filled, name: str, hint: Content) -> dict[str, Attribute]:
    told = [f"{name}-hint"] if hint else []
    told += [f"{name}-error"] if name in form.errors else []
    return {"aria_describedby": " ".join(told) or None, "aria_invalid": "true" if name in form.errors else None}


def _plain_text(type_: str) -> dict[str, Attribute]:
    """Ids and keys are no words."""
    if type_ not in ("text", "search", "password"):
        return {}
    return {"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}
