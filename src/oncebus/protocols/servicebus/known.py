"""The connections that have authenticated. The keys share the places for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oncebus.protocols.servicebus.connection import ClientConnection
    from oncebus.protocols.servicebus.credentials import Key


class KnownClients:
    """The authenticated connections, at most `most`.

    One key may take all places while nobody else needs one. When all are taken, a connection of a key with fewer places
    takes the one of the newest connection of the key with the most, until they have equally many.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._keys: dict[ClientConnection, Key | None] = {}
        # Of each key, the oldest connection first.
        self._of_key: dict[Key | None, dict[ClientConnection, None]] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, client: ClientConnection) -> bool:
        return client in self._keys

    def enter(self, client: ClientConnection, key: Key | None) -> ClientConnection | None:
        """Give a connection a place. Return the connection that has none now: another, this one, or None."""
        loser = None
        if len(self._keys) >= self._most:
            most = max(self._of_key.values(), key=len)
            if len(most) <= len(self._of_key.get(key, ())) + 1:
                return client
            loser = next(reversed(most))
            self.leave(loser)
        self._keys[client] = key
        self._of_key.setdefault(key, {})[client] = None
        return loser

    def leave(self, client: ClientConnection) -> None:
        """Free the place of a connection, if it has one."""
        if client in self._keys:
            key = self._keys.pop(client)
            own = self._of_key[key]
            del own[client]
            if not own:
                del self._of_key[key]
