"""Sessions of signed-in visitors. They are in memory only: after a restart of the gateway, visitors sign in again."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from oncebus.values.durations import HOUR, MINUTE, SECOND

IDLE = HOUR
"""A session expires after this time without use. Polling by pages does not count as use."""
LONGEST = 8 * HOUR
MOST_SESSIONS = 1000
MOST_NOTICES = 5

FAILURES = 10
"""Failed attempts to sign in before a visitor has to wait."""
FAILURES_WITHIN = 5 * MINUTE
_MOST_ADDRESSES = 1000

Passed = Callable[[], int]
"""Returns microseconds of a monotonic clock."""


@dataclass(slots=True)
class PortalSession:
    """A signed-in visitor. `token` was signed with the visitor's key; the key itself is not kept."""

    id: str = field(repr=False)
    token: str = field(repr=False)
    began: int
    used: int
    notices: deque[str] = field(default_factory=lambda: deque(maxlen=MOST_NOTICES))


class PortalSessions:
    """Sessions by their random ids. When there are too many, the least recently used one ends."""

    def __init__(self, passed: Passed, most: int = MOST_SESSIONS) -> None:
        self._passed = passed
        self._most = most
        self._by_id: OrderedDict[str, PortalSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_id)

    def begin(self, token: str) -> PortalSession:
        """Return a new session."""
        now = self._passed()
        session = PortalSession(fresh_id(), token, now, now)
        self._by_id[session.id] = session
        while len(self._by_id) > self._most:
            self._by_id.popitem(last=False)
        return session

    def find(self, identity: str, *, is_use: bool = True) -> PortalSession | None:
        """Return the session whose id is `identity`; None if there is none, or if it has expired.

        With `is_use`, extend it.
        """
        session = self._by_id.get(identity)
        if session is None:
            return None
        now = self._passed()
        if now - session.used >= IDLE or now - session.began >= LONGEST:
            self.end(identity)
            return None
        if is_use:
            session.used = now
            self._by_id.move_to_end(identity)
        return session

    def end(self, identity: str) -> None:
        """End a session, if it exists."""
        self._by_id.pop(identity, None)


class Seal:
    """Proves that the portal made a form for the visitor who submits it (CSRF protection).

    It is bound to one cookie.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def of(self, cookie: str) -> str:
        """Return the seal to put into a form for the visitor with this cookie."""
        return hmac.digest(self._key, cookie.encode(), "sha256").hex()

    def is_right(self, cookie: str, given: str) -> bool:
        """Return whether the seal from a submitted form is valid for this cookie."""
        return bool(cookie) and hmac.compare_digest(self.of(cookie).encode(), given.encode("utf-8", "replace"))


class Failures:
    """Counts failed attempts to sign in by address, for a limited number of addresses."""

    def __init__(self, passed: Passed, most: int = _MOST_ADDRESSES) -> None:
        self._passed = passed
        self._most = most
        self._by_address: OrderedDict[str, deque[int]] = OrderedDict()

    def wait_of(self, address: str) -> int:
        """Return how many seconds the address has to wait before the next attempt; 0 if it may try now."""
        times = self._by_address.get(_network(address))
        if times is None or len(times) < FAILURES:
            return 0
        left = times[0] + FAILURES_WITHIN - self._passed()
        return max(-(-left // SECOND), 0)

    def note(self, address: str) -> None:
        """Count a failed attempt from an address."""
        key = _network(address)
        times = self._by_address.setdefault(key, deque(maxlen=FAILURES))
        times.append(self._passed())
        self._by_address.move_to_end(key)
        while len(self._by_address) > self._most:
            self._by_address.popitem(last=False)

    def forget(self, address: str) -> None:
        """Forget the failures of an address after a successful attempt."""
        self._by_address.pop(_network(address), None)


def fresh_id() -> str:
    """Return a random id that cannot be guessed."""
    return secrets.token_urlsafe(32)


def _network(address: str) -> str:
    """Return the network whose failures count together: an IPv6 visitor has a whole network of addresses."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is None:
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)
