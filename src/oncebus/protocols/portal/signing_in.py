"""Signing in with a connection string, or with the name of a rule and its key."""

from __future__ import annotations

from typing import NamedTuple

from starlette.responses import Response

from oncebus.model.access import AccessRefused, Grant, Guard, Reason, make_token
from oncebus.protocols.portal.forms import Form, button, form_to, group, hidden, list_errors, text_field
from oncebus.protocols.portal.layout import PageFrame, page, top
from oncebus.protocols.portal.links import link
from oncebus.protocols.portal.markup import tag
from oncebus.protocols.portal.sessions import LONGEST
from oncebus.values.errors import OncebusError

WRONG_KEY = "No rule with this name has this key."
OPEN = "This connection is not encrypted: anybody on the network can read the key. Use https."
_LONGEST_STRING = 4096


class Unreadable(OncebusError):
    """The input contains no key. The text does not quote the input."""


class SignInKey(NamedTuple):
    """A rule's name and key. Without an entity they are for the whole namespace."""

    rule: str
    key: str
    entity: str = ""

    def __repr__(self) -> str:
        return f"SignInKey({self.rule!r})"


class VerifiedKey(NamedTuple):
    """The rights of a key, and a token signed with it that replaces the key from now on."""

    grant: Grant
    token: str


def read_key(form: Form) -> SignInKey:
    """Return the key in a form. Raises `Unreadable`."""
    text = form["connection-string"].strip()
    if not text:
        rule, key = form["rule"].strip(), form["key"].strip()
        if not rule or not key:
            raise Unreadable("Enter a connection string, or the name of a rule and its key.")
        return SignInKey(rule, key, form["entity"].strip())
    if len(text) > _LONGEST_STRING:
        raise Unreadable("The connection string is too long.")
    parts = [part.partition("=") for part in text.split(";") if part.strip()]
    given = {name.strip().lower(): value.strip() for name, _, value in parts}
    for name in ("SharedAccessKeyName", "SharedAccessKey"):
        if not given.get(name.lower()):
            raise Unreadable(f"The connection string has no {name}.")
    return SignInKey(given["sharedaccesskeyname"], given["sharedaccesskey"], given.get("entitypath", ""))


def verify_key(shown: SignInKey, guard: Guard, host: str, now: int) -> VerifiedKey:
    """Return the rights of a key. Raises `AccessRefused` if the rule does not exist or has a different key.

    A connection string with a namespace's rule may name an entity; it is still valid for the whole namespace.
    """
    try:
        return _sign_and_verify(shown, "", guard, host, now)
    except AccessRefused as error:
        if error.reason is not Reason.SIGNATURE or not shown.entity:
            raise
        return _sign_and_verify(shown, shown.entity, guard, host, now)


def _sign_and_verify(shown: SignInKey, entity: str, guard: Guard, host: str, now: int) -> VerifiedKey:
    token = make_token(f"sb://{host}/{entity}", shown.rule, shown.key, now + LONGEST)
    return VerifiedKey(guard.verify(token), token)


def sign_in_page(
    seal: str, given: Form, error: str | None = None, status: int = 200, *, onward: str = "", is_open: bool = False
) -> Response:
    """Return the page with the form. It never repeats a key.

    `is_open` adds a warning that others on the network can read the request.
    """
    form = Form({name: given[name] for name in ("rule", "entity")})
    form.general += [error] if error else []
    text = text_field(
        form,
        "connection-string",
        "Connection string",
        type_="password",
        hint="Endpoint=…;SharedAccessKeyName=…;SharedAccessKey=…",
        required=True,
        # Not after an error: then the script moves the focus to its text.
        autofocus=error is None,
    )
    key = [
        text_field(form, "rule", "Name of the rule", hint="Such as RootManageSharedAccessKey", required=True),
        text_field(form, "key", "Key", type_="password", required=True),
        text_field(form, "entity", "Entity", hint="Only for a rule of a queue or a topic"),
    ]
    # Two forms, so that a browser does not save one secret in place of the other.
    forms = [
        form_to(
            link("sign-in"),
            seal,
            hidden("onward", onward),
            group(title, fields, button("Sign in", class_="main"), class_="decision"),
            class_="narrow",
            aria_label=title,
        )
        for title, fields in (("With a connection string", text), ("Or with a key", key))
    ]
    intro = tag("p", "The key decides which pages you can see and use.", class_="lead")
    warning = tag("p", OPEN, class_="notice warning") if is_open else None
    content = [top("Sign in"), intro, warning, list_errors(form, "Not signed in"), *forms]
    return page(PageFrame(), "Sign in", content, status=status)
