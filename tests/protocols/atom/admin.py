"""Raw management requests, without a client."""

from __future__ import annotations

import re
from dataclasses import dataclass
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from tests.protocols.http.http_front import Answer, Front

SERVICE_BUS = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
ATOM = "http://www.w3.org/2005/Atom"
VERSION = "api-version=2021-05"
COUNTS = "{http://schemas.microsoft.com/netservices/2011/06/servicebus}"


_TRACKING = re.compile(r" TrackingId:[0-9a-f-]{36}, SystemTracker:.*, Timestamp:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")


def description(kind: str, content: str = "") -> bytes:
    """Return an entry with a description; its elements are XML already."""
    inside = f'<{kind} xmlns="{SERVICE_BUS}" xmlns:i="http://www.w3.org/2001/XMLSchema-instance">{content}</{kind}>'
    return f'<entry xmlns="{ATOM}"><content type="application/xml">{inside}</content></entry>'.encode()


def elements(**values: object) -> str:
    """Return elements with texts; True and False become `true` and `false`."""
    shown = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()}
    return "".join(f"<{name}>{escape(text)}</{name}>" for name, text in shown.items())


@dataclass
class Admin:
    """Sends the requests of administration clients to an application."""

    front: Front

    async def get(self, path: str, query: str = VERSION, *, token: str | None = "") -> Answer:
        return await self.front.ask("GET", f"/{path}", query=query, token=token)

    async def create(self, path: str, kind: str = "Queue", content: str = "", /, **values: object) -> Answer:
        body = description(f"{kind}Description", content + elements(**values))
        return await self.front.ask("PUT", f"/{path}", body, query=VERSION)

    async def update(self, path: str, kind: str = "Queue", content: str = "", /, **values: object) -> Answer:
        body = description(f"{kind}Description", content + elements(**values))
        return await self.front.ask("PUT", f"/{path}", body, {"If-Match": "*"}, query=VERSION)

    async def put(self, path: str, body: bytes, headers: dict[str, str] | None = None) -> Answer:
        return await self.front.ask("PUT", f"/{path}", body, headers, query=VERSION)

    async def delete(self, path: str, headers: dict[str, str] | None = None) -> Answer:
        return await self.front.ask("DELETE", f"/{path}", b"", headers, query=VERSION)


def described(answer: Answer) -> dict[str, str]:
    """Return the texts of a description's elements by name, without namespaces."""
    assert answer.status in (200, 201), answer.text
    content = ElementTree.fromstring(answer.body).find(f"{{{ATOM}}}content")
    assert content is not None
    return {each.tag.rpartition("}")[2]: each.text or "" for each in content[0]}


def titles(answer: Answer) -> list[str]:
    """Return the titles of a feed's entries."""
    assert answer.status == 200, answer.text
    entries = ElementTree.fromstring(answer.body).findall(f"{{{ATOM}}}entry")
    return [entry.findtext(f"{{{ATOM}}}title") or "" for entry in entries]


def links(answer: Answer) -> list[tuple[str, str]]:
    """Return the links of a feed, in order."""
    found = ElementTree.fromstring(answer.body).findall(f"{{{ATOM}}}link")
    return [(each.attrib["rel"], each.attrib["href"]) for each in found]


def refusal(answer: Answer) -> tuple[int, str]:
    """Return the status and the detail of an error, without what it ends with. The body must have the same status."""
    document = ElementTree.fromstring(answer.body)
    assert (document.tag, document.findtext("Code")) == ("Error", str(answer.status))
    return answer.status, without_tracking(document.findtext("Detail") or "")


def without_tracking(text: str) -> str:
    """Return the text of an error without its tracking id and time."""
    return _TRACKING.sub("", text)


def sub_code(detail: str) -> int | None:
    found = re.match(r"SubCode=([0-9]+)\. ", detail)
    return None if found is None else int(found[1])
