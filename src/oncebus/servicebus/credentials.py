"""What the client of one connection may do: by the tokens it has put, or by the key that it signed in with."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable

from oncebus.access import AccessRefused, Grant, Guard, Operation, Reason, make_token
from oncebus.access.scopes import BadScope, Path, path_of
from oncebus.access.tokens import LATEST
from oncebus.durations import SECOND
from oncebus.errors import OncebusError
from oncebus.servicebus.errors import LIMIT, Refused

log = logging.getLogger(__name__)

LOOK_AGAIN_SECONDS = 60
"""So often every token and key is verified again, whether or not anything is known to have changed."""
# Of the reasons why none of the tokens will do, the one that helps most is told.
_HELPFUL = (Reason.RIGHT, Reason.SIGNATURE, Reason.EXPIRED)


class Credentials:
    """The grants of a connection, one for each resource that a token was put for: a newer one replaces the older.

    A grant is found by the path that it is for, and by when it ends: the time that anything takes here does not grow
    with the number of tokens, but for `look_again`.
    """

    def __init__(self, guard: Guard, now: Callable[[], int], most: int, host: str) -> None:
        self._guard = guard
        self._now = now
        self._most = most
        self._host = host
        self._grants: dict[Path, Grant] = {}
        # When grants end, and of which path. One that was replaced meanwhile has another end, and an entry of its own.
        self._ends: list[tuple[int, Path]] = []
        # The name and key that the client signed in with, the paths of the grants by it, and the next look at all.
        self._key: tuple[str, str] | None = None
        self._by_key: set[Path] = set()
        self._look_at = LATEST

    def __len__(self) -> int:
        return len(self._grants)

    @property
    def next_look(self) -> int | None:
        """When a grant ends, or all are verified again; None where there are none."""
        if not self._grants:
            return None
        ends = self._ends[0][0] if self._ends else LATEST
        return min(ends, self._look_at)

    @property
    def is_good(self) -> bool:
        """Whether there is a grant that has not ended."""
        now = self._now()
        return any(now < grant.expires for grant in self._grants.values())

    @property
    def is_due(self) -> bool:
        """Whether all grants are to be verified again."""
        return self._now() >= self._look_at

    def put(self, token: str) -> None:
        """Take a token, or raise `AccessRefused`."""
        grant = self._guard.verify(token)
        if grant.scope.path not in self._grants and len(self._grants) >= self._most:
            raise Refused(LIMIT, 403, f"The connection holds {self._most} tokens already.")
        self._by_key.discard(grant.scope.path)
        self._take(grant)

    def sign_in(self, response: bytes) -> bool:
        """Take the name and key of a rule, as SASL PLAIN has them; whether they are good.

        The rule may be the namespace's, or that of a queue or topic: it then counts for that one and below.
        """
        parts = response.split(b"\0")
        if len(parts) != 3:
            return False
        try:
            name, key = parts[1].decode(), parts[2].decode()
        except UnicodeDecodeError:
            return False
        try:
            self._take_key(name, key)
        except OncebusError as error:
            log.error("Nobody can sign in: %s", error)
        return bool(self._grants)

    def look_again(self) -> None:
        """Verify everything: give up what the keys and rules as they are now do not permit any more."""
        self._look_at = self._now() + LOOK_AGAIN_SECONDS * SECOND
        try:
            rules = self._guard.namespace_rules()
            for path, grant in list(self._grants.items()):
                if self._guard.renewed(grant, rules) is None:
                    del self._grants[path]
            if self._key is not None:
                self._take_key(*self._key)
        except OncebusError as error:
            # What it was is the best that is known.
            log.error("Keys cannot be looked at again: %s", error)

    def ended(self, now: int) -> list[Path]:
        """Give up the grants that have ended; the paths that they were for."""
        found: list[Path] = []
        while self._ends and self._ends[0][0] <= now:
            end, path = heapq.heappop(self._ends)
            grant = self._grants.get(path)
            # One that is over stays, so that a client is told that its token has expired: unless it put another.
            if grant is not None and grant.expires == end:
                found.append(path)
        return found

    def require(self, operation: Operation, path: str) -> Path:
        """Raise `AccessRefused` unless a token permits the operation at a path now; the path that the token is for.

        The token is verified again: its key may have been rotated, or its rule removed, since it was put.
        """
        try:
            asked = path_of(path)
        except BadScope:
            asked = ()
        refusals: dict[Reason, AccessRefused] = {}
        for depth in range(len(asked) + 1):
            grant = self._grants.get(asked[:depth])
            if grant is None:
                continue
            try:
                self._renewed(grant).require(operation, path, now=self._now())
            except AccessRefused as error:
                refusals[error.reason] = error
            else:
                return grant.scope.path
        found = next((refusals[reason] for reason in _HELPFUL if reason in refusals), None)
        if found is None:
            reason = Reason.AUDIENCE if self._grants else Reason.MISSING
            raise AccessRefused(reason, operation.refusal(f"{self._host}/{path}"))
        raise found

    def require_any(self, path: str) -> Path:
        """Raise `AccessRefused` unless some token is for this path, whatever it permits there; the token's own path."""
        try:
            return self.require(Operation.SEND, path)
        except AccessRefused:
            return self.require(Operation.RECEIVE, path)

    def _renewed(self, grant: Grant) -> Grant:
        try:
            renewed = self._guard.renewed(grant)
        except AccessRefused:
            raise
        except OncebusError as error:
            log.error("A token cannot be verified again: %s", error)
            return grant
        if renewed is None:
            raise AccessRefused(Reason.SIGNATURE, "InvalidSignature: The token has an invalid signature.")
        return renewed

    def _take(self, grant: Grant) -> None:
        if not self._grants:
            self._look_at = self._now() + LOOK_AGAIN_SECONDS * SECOND
        self._grants[grant.scope.path] = grant
        if grant.expires < LATEST:
            heapq.heappush(self._ends, (grant.expires, grant.scope.path))
        if len(self._ends) > 2 * self._most:
            # A client that puts its tokens again and again leaves the ends of the old ones.
            self._ends = [(each.expires, path) for path, each in self._grants.items() if each.expires < LATEST]
            heapq.heapify(self._ends)

    def _take_key(self, name: str, key: str) -> None:
        for path in self._by_key:
            self._grants.pop(path, None)
        self._by_key.clear()
        self._key = (name, key)
        # Signing with the key and judging the signature takes the same time for a wrong key as for a right one.
        for entity in ("", *self._guard.paths_with(name, key)):
            try:
                grant = self._guard.verify(make_token(f"sb://{self._host}/{entity}", name, key, LATEST))
            except AccessRefused:
                continue
            if len(self._grants) >= self._most:
                break
            if grant.scope.path not in self._grants:
                self._by_key.add(grant.scope.path)
                self._take(grant)
