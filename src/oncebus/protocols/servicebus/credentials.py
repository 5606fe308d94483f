"""The rights of one connection's client, from the tokens it has sent or the key it signed in with."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable

from oncebus.amqp.conditions import RESOURCE_LIMIT_EXCEEDED
from oncebus.model.access import AccessRefused, Grant, Guard, Operation, Reason, make_token
from oncebus.model.access.refusal import bad_signature
from oncebus.model.access.scopes import BadScope, Path, path_of
from oncebus.model.access.tokens import LATEST
from oncebus.protocols.servicebus.errors import AmqpRefused
from oncebus.values.durations import SECOND
from oncebus.values.errors import OncebusError

log = logging.getLogger(__name__)

LOOK_AGAIN_SECONDS = 60
"""The interval in which every token and key is verified again, even without a known change."""
# If no token permits an operation, the client gets the most helpful of the reasons.
_HELPFUL = (Reason.RIGHT, Reason.SIGNATURE, Reason.EXPIRED)


Key = tuple[str, str]
"""An authorization rule: the path of the entity that it belongs to, empty for the namespace, and its name."""


class ConnectionCredentials:
    """The grants of a connection, one for each resource that has a token. A newer token replaces the older.

    Grants are indexed by path and by expiry, so no method except `look_again` and `is_good` gets slower with the number
    of tokens.
    """

    def __init__(self, guard: Guard, now: Callable[[], int], most: int, host: str) -> None:
        self._guard = guard
        self._now = now
        self._most = most
        self._host = host
        # How the client calls us, in the texts of errors; tokens are for our own name.
        self.host = host
        self._grants: dict[Path, Grant] = {}
        # Expiry times with their paths. An entry is stale if a newer token has replaced its grant.
        self._ends: list[tuple[int, Path]] = []
        # The name and key that the client signed in with, the paths it grants, and when all grants are verified next.
        self._key: tuple[str, str] | None = None
        self._by_key: set[Path] = set()
        self._look_at = LATEST

    def __len__(self) -> int:
        return len(self._grants)

    @property
    def key(self) -> Key | None:
        """Return the rule of the first grant, which stands for the client where clients have shares; None without."""
        return next(((grant.holder, grant.rule) for grant in self._grants.values()), None)

    @property
    def next_look(self) -> int | None:
        """Return when the next grant expires or when all grants are due to be verified again; None without grants."""
        if not self._grants:
            return None
        ends = self._ends[0][0] if self._ends else LATEST
        return min(ends, self._look_at)

    @property
    def is_good(self) -> bool:
        """Return whether any grant has not expired."""
        now = self._now()
        return any(now < grant.expires for grant in self._grants.values())

    @property
    def is_due(self) -> bool:
        """Return whether it is time to verify all grants again."""
        return self._now() >= self._look_at

    def put(self, token: str, path: str = "") -> None:
        """Verify and keep a token. Raises `AccessRefused` if it is invalid, `AmqpRefused` if there are too many.

        `path` is what the client puts it for.
        """
        grant = self._guard.verify(token, path)
        if grant.scope.path not in self._grants and len(self._grants) >= self._most:
            raise AmqpRefused(RESOURCE_LIMIT_EXCEEDED, 403, f"The connection already holds {self._most} tokens.")
        self._by_key.discard(grant.scope.path)
        self._take(grant)

    def sign_in(self, response: bytes) -> bool:
        """Sign in with the name and key of a rule, from a SASL PLAIN response. Return whether they are valid.

        The rule may belong to the namespace, or to a queue or topic: then it grants rights on that entity and below.
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
            log.error("A client cannot sign in, because its key cannot be verified: %s", error)
        return bool(self._grants)

    def look_again(self) -> None:
        """Verify all grants against the current keys and rules, and remove those that are no longer valid."""
        self._look_at = self._now() + LOOK_AGAIN_SECONDS * SECOND
        try:
            rules = self._guard.namespace_rules()
            for path, grant in list(self._grants.items()):
                if self._guard.renew(grant, rules) is None:
                    del self._grants[path]
            if self._key is not None:
                self._take_key(*self._key)
        except OncebusError as error:
            # Keep the grants: the last known state is better than none.
            log.error("A client keeps its access for now, because its keys cannot be re-verified: %s", error)

    def take_expired(self, now: int) -> list[Path]:
        """Return the paths of the grants that have expired since the last call."""
        found: list[Path] = []
        while self._ends and self._ends[0][0] <= now:
            end, path = heapq.heappop(self._ends)
            grant = self._grants.get(path)
            # The expired grant stays, so that a refusal can name the expired token; a newer token replaces it.
            if grant is not None and grant.expires == end:
                found.append(path)
        return found

    def require(self, operation: Operation, path: str) -> Path:
        """Return the path of a token that permits the operation at `path` now, or raise `AccessRefused`.

        The token is verified again, because its key may have been rotated, or its rule removed, since it was put.
        """
        try:
            parts = path_of(path)
        except BadScope:
            parts = ()
        refusals: dict[Reason, AccessRefused] = {}
        for depth in range(len(parts) + 1):
            grant = self._grants.get(parts[:depth])
            if grant is None:
                continue
            try:
                self._verify_again(grant).require(operation, path, now=self._now())
            except AccessRefused as error:
                refusals[error.reason] = error
            else:
                return grant.scope.path
        found = next((refusals[reason] for reason in _HELPFUL if reason in refusals), None)
        if found is None:
            reason = Reason.AUDIENCE if self._grants else Reason.MISSING
            raise AccessRefused(reason, operation.refusal(f"{self.host}/{path}"))
        raise found

    def require_any(self, path: str) -> Path:
        """Return the path of a token that permits sending or receiving at `path`, or raise `AccessRefused`."""
        try:
            return self.require(Operation.SEND, path)
        except AccessRefused:
            return self.require(Operation.RECEIVE, path)

    def _verify_again(self, grant: Grant) -> Grant:
        try:
            renewed = self._guard.renew(grant)
        except AccessRefused:
            raise
        except OncebusError as error:
            log.error("A token cannot be verified again: %s", error)
            return grant
        if renewed is None:
            raise bad_signature()
        return renewed

    def _take(self, grant: Grant) -> None:
        if not self._grants:
            self._look_at = self._now() + LOOK_AGAIN_SECONDS * SECOND
        self._grants[grant.scope.path] = grant
        if grant.expires < LATEST:
            heapq.heappush(self._ends, (grant.expires, grant.scope.path))
        if len(self._ends) > 2 * self._most:
            # A client that renews its tokens often leaves stale entries: rebuild the heap.
            self._ends = [(each.expires, path) for path, each in self._grants.items() if each.expires < LATEST]
            heapq.heapify(self._ends)

    def _take_key(self, name: str, key: str) -> None:
        for path in self._by_key:
            self._grants.pop(path, None)
        self._by_key.clear()
        self._key = (name, key)
        # Sign with the key and verify the signature: this takes the same time for a wrong key as for a right one.
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
