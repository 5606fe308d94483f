"""The Atom envelope: an entry around one description, or a feed of entries."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from starlette.responses import Response

from oncebus.model.entities import BadRequest
from oncebus.protocols.atom import markup
from oncebus.protocols.atom.descriptions import KINDS, SERVICE_BUS
from oncebus.protocols.atom.document import Element, read_document
from oncebus.protocols.http.times import iso8601
from oncebus.values.errors import clip

ATOM = "http://www.w3.org/2005/Atom"
RULE = "RuleDescription"


@dataclass(frozen=True, slots=True)
class Site:
    """The address under which the client reached the broker. `author` is the namespace's name."""

    scheme: str
    host: str
    api_version: str
    author: str

    def address(self, path: str, **query: int) -> str:
        """Return the absolute URL of a path, with the request's api-version."""
        parameters = urlencode(
            {"api-version": self.api_version, **{f"${key}": value for key, value in query.items()}}, safe="$"
        )
        return f"{self.scheme}://{self.host}/{quote(path, safe='/$~')}?{parameters}"


@dataclass(frozen=True, slots=True)
class AtomEntry:
    """An entry of the feed. Times are in microseconds since 1970. `etag` changes when the description changes."""

    path: str
    title: str
    published: int
    updated: int
    content: str
    etag: str | None = None

    def markup(self, site: Site, namespace: bool = True) -> str:
        """Return the entry as XML. Pass `namespace=False` inside a feed, which declares the XML namespace itself."""
        address = site.address(self.path)
        parts = (
            markup.field("id", address),
            markup.tag("title", markup.text(self.title), {"type": "text"}),
            markup.field("published", iso8601(self.published)),
            markup.field("updated", iso8601(self.updated)),
            markup.tag("author", markup.field("name", site.author)),
            markup.tag("link", "", {"rel": "self", "href": address}),
            markup.tag("content", self.content, {"type": "application/xml"}),
        )
        return markup.tag("entry", "".join(parts), {"xmlns": ATOM} if namespace else None)


def entry_response(entry: AtomEntry, site: Site, status: int = 200) -> Response:
    """Return the response with one entry."""
    headers = {"etag": entry.etag} if entry.etag is not None else None
    return _response(entry.markup(site), "entry", status, headers)


def feed_response(
    path: str, title: str, entries: Iterable[AtomEntry], site: Site, now: int, skip: int, top: int, has_more: bool
) -> Response:
    """Return the response with a page of entries.

    The link to the next page is the second one, because a client finds it by its position.
    """
    own = site.address(path, skip=skip, top=top)
    parts = [
        markup.tag("title", markup.text(title), {"type": "text"}),
        markup.field("id", own),
        markup.field("updated", iso8601(now)),
        markup.tag("link", "", {"rel": "self", "href": own}),
    ]
    if has_more:
        parts.append(markup.tag("link", "", {"rel": "next", "href": site.address(path, skip=skip + top, top=top)}))
    parts += [entry.markup(site, namespace=False) for entry in entries]
    return _response(markup.tag("feed", "".join(parts), {"xmlns": ATOM}), "feed", 200, None)


def read_entry(body: bytes) -> Element:
    """Return the description in an entry. Raises `BadRequest`."""
    if not body.strip():
        raise BadRequest("The request has no body. It needs an Atom entry with a description.")
    root = read_document(body)
    if (root.namespace, root.name) != (ATOM, "entry"):
        raise BadRequest(f"The body of the request is the element {clip(root.name)}. Not an entry of '{ATOM}'.")
    content = [each for each in root if each.name == "content"]
    if len(content) != 1 or len(content[0].children) != 1:
        raise BadRequest("The entry must have one content element, with one description in it.")
    description = content[0].children[0]
    if description.name not in (*KINDS, RULE):
        raise BadRequest(
            f"The content is the element {clip(description.name)}. Not one of {', '.join((*KINDS, RULE))}."
        )
    if description.namespace != SERVICE_BUS:
        raise BadRequest(f"The element '{description.name}' is not in the XML namespace '{SERVICE_BUS}'.")
    return description


def etag_of(content: str) -> str:
    """Return the ETag of a content: its hash."""
    return f'"{hashlib.blake2b(content.encode(), digest_size=8).hexdigest()}"'


def matches(if_match: str, etag: str) -> bool:
    """Return whether the If-Match header contains this ETag, or is `*`."""
    tags = [tag.strip().removeprefix("W/") for tag in if_match.split(",")]
    return "*" in tags or etag in tags


def _response(content: str, kind: str, status: int, headers: dict[str, str] | None) -> Response:
    return Response(content.encode(), status, headers, f"application/atom+xml;type={kind};charset=utf-8")
