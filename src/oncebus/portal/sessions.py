"""Who is signed in. Kept in memory only: a gateway that is started again asks everybody for their key again."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from oncebus.durations import HOUR, MINUTE, SECOND

IDLE = HOUR
"""A session ends when nothing was done in it for so long. Pages that look again by themselves do nothing."""
LONGEST = 8 * HOUR
MOST_SESSIONS = 1000
MOST_NOTICES = 5

FAILURES = 10
"""So often may somebody fail to sign in before they have to wait."""
FAILURES_WITHIN = 5 * MINUTE
_MOST_ADDRESSES = 1000

Passed = Callable[[], int]
"""Microseconds on a clock that nobody sets."""


@dataclass(slots=True)
class Session:
    """Somebody who has shown a key. `token` is what was signed with it: the key itself is not kept."""

    id: str = field(repr=False)
    token: str = field(repr=False)
    began: int
    used: int
    notices: deque[str] = field(default_factory=lambda: deque(maxlen=MOST_NOTICES))


class Sessions:
    """Sessions by their ids, which nobody can guess. With too many, the one that was used longest ago is ended."""

    def __init__(self, passed: Passed, most: int = MOST_SESSIONS) -> None:
        self._passed = passed
        self._most = most
        self._by_id: OrderedDict[str, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_id)

    def begin(self, token: str) -> Session:
        """A new session."""
        now = self._passed()
        session = Session(fresh_id(), token, now, now)
        self._by_id[session.id] = session
        while len(self._by_id) > self._most:
            self._by_id.popitem(last=False)
        return session

    def find(self, identity: str, *, is_use: bool = True) -> Session | None:
        """The session of that id, unless it has ended."""
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
        """No such session any more."""
        self._by_id.pop(identity, None)


class Seal:
    """What proves that a form was made here for who sends it back: it goes with their cookie and with no other."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def of(self, cookie: str) -> str:
        """The value that the form brings along."""
        return hmac.digest(self._key, cookie.encode(), "sha256").hex()

    def is_right(self, cookie: str, given: str) -> bool:
        """Whether a form that came with this cookie has the right one."""
        return bool(cookie) and hmac.compare_digest(self.of(cookie).encode(), given.encode("utf-8", "replace"))


class Failures:
    """Counts who failed to sign in, by their address, of which only so many are remembered."""

    def __init__(self, passed: Passed, most: int = _MOST_ADDRESSES) -> None:
        self._passed = passed
        self._most = most
        self._by_address: OrderedDict[str, deque[int]] = OrderedDict()

    def wait_of(self, address: str) -> int:
        """For how many seconds nobody may try from there; 0 where they may."""
        times = self._by_address.get(_network(address))
        if times is None or len(times) < FAILURES:
            return 0
        left = times[0] + FAILURES_WITHIN - self._passed()
        return max(-(-left // SECOND), 0)

    def note(self, address: str) -> None:
        """Somebody has failed there."""
        key = _network(address)
        times = self._by_address.setdefault(key, deque(maxlen=FAILURES))
        times.append(self._passed())
        self._by_address.move_to_end(key)
        while len(self._by_address) > self._most:
            self._by_address.popitem(last=False)

    def forget(self, address: str) -> None:
        """Somebody has succeeded there."""
        self._by_address.pop(_network(address), None)


def fresh_id() -> str:
    """What nobody can guess."""
    return secrets.token_urlsafe(32)


def _network(address: str) -> str:
    """Of IPv6 everybody has a whole network."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is None:
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)
