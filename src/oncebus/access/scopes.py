"""What a token is for: a host and a path, compared segment by segment.

`sb://Host:5671/Topic/` and `https://host/topic` are the same scope. It covers `topic/Subscriptions/s`, but not
`topic2`. A query, as some clients sign it, belongs to no scope.
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
# Only these: a wider folding would make one name of two that the catalogue tells apart.
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


class BadScope(ValueError):
    """A text is not an address. Never leaves this package."""


@dataclass(frozen=True)
class Scope:
    """A host and what lies below a path of it."""

    host: str
    path: Path

    def covers(self, path: Path) -> bool:
        """Whether the path is this one or below."""
        return path[: len(self.path)] == self.path

    def levels(self) -> list[str]:
        """The path and those above it, outermost first, without the namespace itself."""
        return ["/".join(self.path[: depth + 1]) for depth in range(len(self.path))]


def scope_of(address: str) -> Scope:
    """The scope that an address names, once its url-encoding is gone. Without a scheme it starts with the host."""
    scheme, separator, rest = address.partition("://")
    if separator:
        # The service takes any.
        if not _SCHEME.fullmatch(scheme):
            raise BadScope("scheme")
    else:
        rest = address
    authority, slash, path = re.split(r"[?#]", rest, maxsplit=1)[0].partition("/")
    return Scope(host_of(authority), path_of(slash + path))


def host_of(authority: str) -> str:
    """The host in lower case, without its port. An IPv6 address may come without its brackets."""
    if authority.count(":") > 1 and not authority.startswith("["):
        authority = f"[{authority}]"
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        raise BadScope("host")
    return match["host"].translate(_LOWER)


def same_host(host: str, other: str) -> bool:
    """Whether two hosts are one, whatever their case and port. A text that is no host is like no other."""
    try:
        return host_of(host) == host_of(other)
    except BadScope:
        return False


def path_of(text: str) -> Path:
    """The segments of an entity's path in lower case. One slash at either end makes no difference."""
    if text in ("", "/"):
        return ()
    text = text.removeprefix("/").removesuffix("/")
    if len(text) > LONGEST_PATH or not text.isprintable():
        raise BadScope("path")
    segments = tuple(text.translate(_LOWER).split("/"))
    if len(segments) > MOST_SEGMENTS or any(segment in ("", ".", "..") for segment in segments):
        raise BadScope("path")
    return segments
