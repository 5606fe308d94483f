"""Forms: what a visitor submits, and fields that show it again, each with a label, a hint and an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import parse_qs

from oncebus.model.entities import BadRequest, EntityError
from oncebus.protocols.http.errors import Refused
from oncebus.protocols.portal.markup import Attribute, Content, Markup, tag
from oncebus.values.errors import OncebusError

FORM = "application/x-www-form-urlencoded"
_MOST_FIELDS = 1200


class Form:
    """The values of fields, and their errors. A missing field is empty, because browsers do not send unchecked boxes.

    `lists` has all values of the fields, because checkboxes may share a name.
    """

    def __init__(
        self, values: Mapping[str, str] | None = None, lists: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        self.values = dict(values or {})
        self.lists = dict(lists or {})
        self.errors: dict[str, str] = {}
        self.general: list[str] = []

    def __getitem__(self, name: str) -> str:
        return self.values.get(name, "")

    @property
    def is_wrong(self) -> bool:
        """Return whether there is any error."""
        return bool(self.errors or self.general)

    def add_error(self, error: OncebusError, fields: Mapping[str, str]) -> None:
        """Attach an error to the field that it concerns, or to the top of the form.

        `fields` maps the names that errors use to the fields.
        """
        name = fields.get(error.field or "")
        if name is not None:
            self.errors[name] = error.summary if isinstance(error, EntityError) else str(error)
        else:
            self.general.append(str(error))


def read_form(body: bytes, content_type: str) -> Form:
    """Return the form in the body of a request. Raises `Refused` or `BadRequest`."""
    if content_type.partition(";")[0].strip().lower() != FORM:
        raise Refused(415, f"The content type of a form must be '{FORM}'.")
    try:
        lists = parse_qs(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise BadRequest("The form is not url-encoded UTF-8, or has too many fields.") from None
    # Browsers send line breaks as CR LF.
    return Form({name: values[0].replace("\r\n", "\n") for name, values in lists.items()}, lists)


def list_errors(form: Form, title: str, titles: Mapping[str, str] | None = None) -> Markup | None:
    """Return the list of errors for the top of the page, with links to the fields.

    `titles` has the labels of the fields.
    """
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
    form: Form,
    name: str,
    label: str,
    *,
    hint: Content = None,
    type_: str = "text",
    is_fixed: bool = False,
    **attributes: Attribute,
) -> Markup:
    """Return a field for one line of text, or for a number."""
    box = tag(
        "input",
        id=name,
        name=name,
        type=type_,
        value=None if type_ == "password" else form[name],
        disabled=is_fixed,
        **_aria(form, name, hint),
        **_plain_text(type_),
        **attributes,
    )
    return _field(form, name, label, box, hint)


def area(form: Form, name: str, label: str, *, hint: Content = None, rows: int = 4, **attributes: Attribute) -> Markup:
    """Return a field for several lines of text."""
    # Browsers drop a line break right after the tag. With an extra one, the text keeps its own.
    content = ["\n", form[name]]
    described_by = _aria(form, name, hint)
    box = tag("textarea", content, id=name, name=name, rows=rows, **described_by, **_plain_text("text"), **attributes)
    return _field(form, name, label, box, hint)


def check_box(form: Form, name: str, label: str, *, hint: Content = None, is_fixed: bool = False) -> Markup:
    """Return a checkbox."""
    described_by = _aria(form, name, hint)
    box = tag("input", id=name, name=name, type="checkbox", checked=bool(form[name]), disabled=is_fixed, **described_by)
    line = tag("div", box, tag("label", label, for_=name), class_="check")
    return tag("div", line, _hint(name, hint), _error(form, name), class_=_class(form, name))


def choice(form: Form, name: str, label: str, options: Sequence[tuple[str, str]], *, hint: Content = None) -> Markup:
    """Return a field to choose one of several options, each a value and a title."""
    listed = [tag("option", title, value=value, selected=form[name] == value) for value, title in options]
    return _field(form, name, label, tag("select", listed, id=name, name=name, **_aria(form, name, hint)), hint)


def group(legend: str, *content: Content, **attributes: Attribute) -> Markup:
    """Return a group of fields with a legend."""
    return tag("fieldset", tag("legend", legend), content, **attributes)


def button(title: str, *, class_: str | None = None, **attributes: Attribute) -> Markup:
    """Return a button that submits a form."""
    return tag("button", title, type="submit", class_=class_, **attributes)


def form_to(address: str, seal: str, *content: Content, **attributes: Attribute) -> Markup:
    """Return a form that posts to `address`. The seal proves that the portal made it."""
    hidden = tag("input", type="hidden", name="seal", value=seal)
    return tag("form", hidden, content, method="post", action=address, **attributes)


def search_form(action: str, label: str, *content: Content) -> Markup:
    """Return a form that searches the table of a page. `label` names it for screen readers."""
    return tag(
        "form",
        *content,
        button("Find"),
        method="get",
        action=action,
        class_="inline",
        role="search",
        aria_label=label,
    )


def hidden(name: str, value: str | int) -> Markup:
    """Return a hidden field."""
    return tag("input", type="hidden", name=name, value=value)


def _field(form: Form, name: str, label: str, box: Markup, hint: Content) -> Markup:
    return tag(
        "div", tag("label", label, for_=name), _hint(name, hint), box, _error(form, name), class_=_class(form, name)
    )


def _class(form: Form, name: str) -> str:
    return "field wrong" if name in form.errors else "field"


def _hint(name: str, hint: Content) -> Markup | None:
    return tag("p", hint, id=f"{name}-hint", class_="hint") if hint else None


def _error(form: Form, name: str) -> Markup | None:
    return tag("p", form.errors[name], id=f"{name}-error", class_="error") if name in form.errors else None


def _aria(form: Form, name: str, hint: Content) -> dict[str, Attribute]:
    described_by = [f"{name}-hint"] if hint else []
    described_by += [f"{name}-error"] if name in form.errors else []
    return {"aria_describedby": " ".join(described_by) or None, "aria_invalid": "true" if name in form.errors else None}


def _plain_text(type_: str) -> dict[str, Attribute]:
    """Return attributes that switch off spelling and completion, because ids and keys are not words."""
    if type_ not in ("text", "search", "password"):
        return {}
    return {"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}
