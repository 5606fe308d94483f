"""The scope of a token: a host and a path, compared segment by segment.

`sb://Host:5671/Topic/` and `https://host/topic` are the same scope. It covers `topic/Subscriptions/s` but not
`topic2`. Some clients sign a URL with a query; the query is ignored.
"""

from __future__ import annotations

import re
import string
from dataclasses import dataclass

MOST_SEGMENTS = 64
LONGEST_PATH = 1024

Path = tuple[str, ...]

_AUTHORITY = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
# Only ASCII letters: Unicode case folding would merge two names that the catalogue distinguishes.
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


class BadScope(ValueError):
    """A text is not an address. Does not leave this package."""


@dataclass(frozen=True)
class Scope:
    """A path on a host, and everything below it."""

    host: str
    path: Path

    def covers(self, path: Path) -> bool:
        """Return whether a path is this scope's path or below it."""
        return path[: len(self.path)] == self.path

    def levels(self) -> list[str]:
        """Return the paths of all levels from the outermost to this scope's own, without the namespace itself."""
        return ["/".join(self.path[: depth + 1]) for depth in range(len(self.path))]


def scope_of(address: str) -> Scope:
    """Return the scope of an address that is already URL-decoded. Raises `BadScope`.

    An address without a scheme starts with the host.
    """
    scheme, separator, rest = address.partition("://")
    if separator:
        # The service accepts any scheme.
        if not _SCHEME.fullmatch(scheme):
            raise BadScope("scheme")
    else:
        rest = address
    authority, slash, path = re.split(r"[?#]", rest, maxsplit=1)[0].partition("/")
    return Scope(host_of(authority), path_of(slash + path))


def host_of(authority: str) -> str:
    """Return the host in lower case, without its port. Raises `BadScope`. IPv6 addresses need no brackets."""
    if authority.count(":") > 1 and not authority.startswith("["):
        authority = f"[{authority}]"
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        raise BadScope("host")
    return match["host"].translate(_LOWER)


def same_host(host: str, other: str) -> bool:
    """Return whether two hosts are the same, ignoring letter case and port. False if either is invalid."""
    try:
        return host_of(host) == host_of(other)
    except BadScope:
        return False


def path_of(text: str) -> Path:
    """Return the segments of an entity's path in lower case. Raises `BadScope`. One slash at either end is ignored."""
    if text in ("", "/"):
        return ()
    text = text.removeprefix("/").removesuffix("/")
    if len(text) > LONGEST_PATH or not text.isprintable():
        raise BadScope("path")
    segments = tuple(text.translate(_LOWER).split("/"))
    if len(segments) > MOST_SEGMENTS or any(segment in ("", ".", "..") for segment in segments):
        raise BadScope("path")
    return segments
