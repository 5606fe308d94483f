"""Addresses of the portal's pages and files."""

from __future__ import annotations

import hashlib
from importlib import resources
from urllib.parse import quote, urlencode

BASE = "/$portal/"
STATIC = {
    "portal.css": "text/css; charset=utf-8",
    "portal.js": "text/javascript; charset=utf-8",
    "portal.svg": "image/svg+xml",
}


def link(page: str = "", /, **query: str | int | None) -> str:
    """Return the address of a page. Parameters that are None are left out; underscores in names become hyphens."""
    given = [(name.replace("_", "-"), str(value)) for name, value in query.items() if value is not None]
    return f"{BASE}{page}?{urlencode(given, quote_via=quote, safe='/')}" if given else f"{BASE}{page}"


def is_ours(address: str) -> bool:
    """Return whether an address is a page of the portal. Check this before redirecting to an address from a request."""
    path = address.partition("?")[0]
    is_plain = address.isascii() and address.isprintable() and "\\" not in address
    return path.startswith(BASE) and ".." not in path and is_plain


def static_file(name: str) -> bytes:
    """Return the content of a static file."""
    return resources.files("oncebus.protocols.portal").joinpath("static", name).read_bytes()


def _stamp_address(name: str) -> str:
    digest = hashlib.blake2b(static_file(name), digest_size=8).hexdigest()
    return link(f"static/{name}", v=digest)


STAMPED = {name: _stamp_address(name) for name in STATIC}
"""The addresses of static files. They change with the content, so that browsers may cache them forever."""
