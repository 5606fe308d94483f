"""Who asks, and may they: the token of a request against the rules of the namespace and of the entities."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from oncebus import access
from oncebus.access import AccessRefused, AuthorizationRule, Grant, Operation, Reason
from oncebus.entities import Catalogue, Queue, Subscription, Topic, path_of_address
from oncebus.entities.names import key_of_path

FORWARDING = ("forward_to", "forward_dead_lettered_messages_to")
"""The fields of a description that name another entity."""
_BEARER = "bearer "
_PARTS = ("subscriptions", "messages")
"""What stands below an entity and is part of it, besides names that begin with $."""

NamespaceRules = Callable[[], Iterable[AuthorizationRule]]


class Guard:
    """Believes tokens, and says what they permit. `now` is in microseconds since 1970."""

    def __init__(
        self,
        namespace_rules: NamespaceRules,
        catalogue: Callable[[], Catalogue],
        now: Callable[[], int],
        host: str | None,
    ) -> None:
        self._namespace_rules = namespace_rules
        self._catalogue = catalogue
        self._now = now
        self._host = host
        self._paths: tuple[Catalogue, dict[tuple[str, str], list[str]]] | None = None

    def verify(self, token: str | None) -> Grant:
        """Believe a token, or raise `AccessRefused`. Nothing is told of the namespace before.

        It may come behind the word Bearer: clients that know of no other tokens put it there.
        """
        catalogue = self._catalogue()
        return access.verify(
            _bare(token),
            now=self._now(),
            namespace_rules=self._namespace_rules(),
            rules_of=lambda path: rules_of(catalogue, path),
            # Asked again and again while a connection lasts: of the catalogue as it is then.
            owner_of=lambda path: owner_of(self._catalogue(), path),
            host=self._host,
        )

    def renewed(self, grant: Grant, namespace_rules: Iterable[AuthorizationRule] | None = None) -> Grant | None:
        """The grant under the rules as they are now; None if the key that signed its token is no longer good.

        Whoever asks for many gives the rules of the namespace, which are looked up otherwise.
        """
        catalogue = self._catalogue()
        return access.renewed(
            grant,
            namespace_rules=self._namespace_rules() if namespace_rules is None else namespace_rules,
            rules_of=lambda path: rules_of(catalogue, path),
        )

    def namespace_rules(self) -> tuple[AuthorizationRule, ...]:
        """The rules of the namespace as they are now."""
        return tuple(self._namespace_rules())

    def paths_with(self, rule: str, key: str) -> list[str]:
        """The paths of the queues and topics that have a rule of that name with that key."""
        catalogue = self._catalogue()
        # Anybody may ask by trying to sign in, and very many entities may have a rule of the same name: they are gone
        # through once for each catalogue. What a key is nearly like is not told: only keys of one hash are compared.
        if self._paths is None or self._paths[0] is not catalogue:
            paths: dict[tuple[str, str], list[str]] = {}
            for entity in catalogue.entities.values():
                if isinstance(entity, Queue | Topic):
                    for each in entity.authorization_rules:
                        for known in {each.primary_key, each.secondary_key}:
                            paths.setdefault((each.name, known), []).append(entity.path)
            self._paths = catalogue, paths
        return self._paths[1].get((rule, key), [])

    def require(self, grant: Grant, operation: Operation, path: str, below: str = "") -> None:
        """Raise `AccessRefused` unless the operation on the entity at a path is permitted.

        `below` is what the request names beneath the entity: many clients sign for that alone.
        """
        now = self._now()
        try:
            grant.require(operation, path, now=now)
        except AccessRefused as error:
            # What is signed for an entity of that name is for that entity.
            is_other = bool(below) and self._catalogue().find(f"{path}/{below}") is not None
            if error.reason is not Reason.AUDIENCE or not below or is_other:
                raise
            grant.require(operation, f"{path}/{below}", now=now)

    def require_forwarding(
        self,
        grant: Grant,
        old: Queue | Subscription | None,
        new: Queue | Subscription,
        tokens: Mapping[str, str | None],
    ) -> None:
        """Raise `AccessRefused` unless an entity may come to forward where `new` does.

        `tokens` are the supplementary ones, by the field they are for: one that came must permit it. Without one the
        request's own must, unless the entity forwards there already.
        """
        for field in FORWARDING:
            address: str | None = getattr(new, field)
            target = path_of_address(address) if address else ""
            token = tokens.get(field)
            if not target:
                continue
            if token is not None:
                self.require(self.verify(token), Operation.FORWARD_TO, target)
            elif old is None or key_of_path(getattr(old, field) or "") != key_of_path(target):
                self.require(grant, Operation.FORWARD_TO, target)


def _bare(token: str | None) -> str | None:
    if token is not None and token[: len(_BEARER)].lower() == _BEARER:
        return token[len(_BEARER) :].lstrip()
    return token


def rules_of(catalogue: Catalogue, path: str) -> list[AuthorizationRule]:
    """The rules of the entity at a path. A subscription has none of its own."""
    entity = catalogue.find(path)
    if not isinstance(entity, Queue | Topic):
        return []
    return list(entity.authorization_rules)


def owner_of(catalogue: Catalogue, path: str) -> str:
    """The path of the queue or topic that a path in lower case belongs to; the path itself where it is none's part."""
    segments = path.split("/")
    for size in range(len(segments), 0, -1):
        above = "/".join(segments[:size])
        if isinstance(catalogue.find(above), Queue | Topic):
            is_part = size == len(segments) or segments[size] in _PARTS or segments[size].startswith("$")
            return above if is_part else path
    return path
