"""What the client of one connection may do: by the tokens it has put, or by the key that it signed in with."""

from __future__ import annotations

import logging
from collections.abc import Callable

from oncebus.access import AccessRefused, AuthorizationRule, Grant, Operation, Reason, make_token
from oncebus.access.tokens import LATEST
from oncebus.durations import MINUTE
from oncebus.entities import Catalogue, Subscription
from oncebus.errors import OncebusError
from oncebus.http.guard import Guard, rules_of
from oncebus.servicebus.errors import LIMIT, Refused

log = logging.getLogger(__name__)

# Of the reasons why none of the tokens will do, the one that helps most is told.
_HELPFUL = (Reason.RIGHT, Reason.EXPIRED, Reason.AUDIENCE)


class Credentials:
    """The grants of a connection, one for each resource that a token was put for: a newer one replaces the older."""

    def __init__(
        self, guard: Guard, catalogue: Callable[[], Catalogue], now: Callable[[], int], most: int, host: str
    ) -> None:
        self._guard = guard
        self._catalogue = catalogue
        self._now = now
        self._most = most
        self._host = host
        self._grants: dict[tuple[str, ...], Grant] = {}
        # The name and key that the client signed in with, the grants by it, and when it is looked at again.
        self._key: tuple[str, str] | None = None
        self._by_key: dict[tuple[str, ...], Grant] = {}
        self._look_at = LATEST

    def expires_after(self, now: int) -> int | None:
        """When the next grant ends that has not ended yet, or a key is looked at again; None where that is never."""
        ends = [grant.expires for grant in self._grants.values() if now < grant.expires < LATEST]
        if self._look_at < LATEST:
            ends.append(self._look_at)
        return min(ends, default=None)

    def put(self, token: str) -> None:
        """Take a token, or raise `AccessRefused`."""
        grant = self._guard.verify(token)
        if grant.scope.path not in self._grants and len(self._grants) >= self._most:
            raise Refused(LIMIT, 403, f"The connection holds {self._most} tokens already.")
        self._grants[grant.scope.path] = grant
        self._by_key.pop(grant.scope.path, None)

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
        """Each minute: give up what the key of the rule that the client signed in with does not permit any more."""
        if self._key is None or self._now() < self._look_at:
            return
        try:
            self._take_key(*self._key)
        except OncebusError as error:
            # What it was is the best that is known.
            log.error("Keys cannot be looked at again: %s", error)
            self._look_at = self._now() + MINUTE

    def _take_key(self, name: str, key: str) -> None:
        found: dict[tuple[str, ...], Grant] = {}
        # Signing with the key and judging the signature takes the same time for a wrong key as for a right one.
        for path in ("", *self._paths_with(name)):
            try:
                grant = self._guard.verify(make_token(f"sb://{self._host}/{path}", name, key, LATEST))
            except AccessRefused:
                continue
            found[grant.scope.path] = grant
            if len(found) == self._most:
                break
        kept = {path: grant for path, grant in self._grants.items() if path not in self._by_key}
        self._by_key = {path: grant for path, grant in found.items() if path not in kept}
        self._grants = kept | self._by_key
        self._key, self._look_at = (name, key), self._now() + MINUTE

    def require(self, operation: Operation, path: str) -> None:
        """Raise `AccessRefused` unless some token permits the operation at a path."""
        refusals: dict[Reason, AccessRefused] = {}
        for grant in self._grants.values():
            try:
                grant.require(operation, path, now=self._now())
            except AccessRefused as error:
                refusals[error.reason] = error
            else:
                return
        found = next((refusals[reason] for reason in _HELPFUL if reason in refusals), None)
        if found is None or found.reason is Reason.AUDIENCE:
            reason = Reason.MISSING if found is None else Reason.AUDIENCE
            raise AccessRefused(reason, operation.refusal(f"{self._host}/{path}"))
        raise found

    def require_any(self, path: str) -> None:
        """Raise `AccessRefused` unless some token is for this path, whatever it permits there."""
        try:
            self.require(Operation.SEND, path)
        except AccessRefused:
            self.require(Operation.RECEIVE, path)

    def _paths_with(self, rule: str) -> list[str]:
        catalogue = self._catalogue()
        return [
            entity.path
            for entity in catalogue.entities.values()
            if not isinstance(entity, Subscription) and rule in _names(rules_of(catalogue, entity.path))
        ]


def _names(rules: list[AuthorizationRule]) -> set[str]:
    return {rule.name for rule in rules}
