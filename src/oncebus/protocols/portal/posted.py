"""The content of a submitted form."""

from __future__ import annotations

from urllib.parse import parse_qsl

from oncebus.model.entities import BadRequest
from oncebus.protocols.http.errors import Refused

FORM = "application/x-www-form-urlencoded"
_MOST_FIELDS = 1200


class Posted:
    """The fields of a form. A missing field reads as empty, because browsers do not send unchecked boxes."""

    def __init__(self, pairs: list[tuple[str, str]] | None = None) -> None:
        self._pairs = pairs or []
        self._first: dict[str, str] = {}
        for name, value in self._pairs:
            self._first.setdefault(name, value)

    def __contains__(self, name: str) -> bool:
        return name in self._first

    def __getitem__(self, name: str) -> str:
        return self._first.get(name, "")

    def all(self, name: str) -> list[str]:
        """Return all values of a field. Checkboxes may share a name."""
        return [value for each, value in self._pairs if each == name]

    def values(self) -> dict[str, str]:
        """Return each field with its first value."""
        return dict(self._first)


def read_form(body: bytes, content_type: str) -> Posted:
    """Return the form in the body of a request. Raises `Refused` or `BadRequest`."""
    if content_type.partition(";")[0].strip().lower() != FORM:
        raise Refused(415, f"The content type of a form must be '{FORM}'.")
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise BadRequest("The form is not url-encoded UTF-8, or has too many fields.") from None
    # Browsers send line breaks as CR LF.
    return Posted([(name, value.replace("\r\n", "\n")) for name, value in pairs])
