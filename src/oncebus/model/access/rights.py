"""The table of operations and the rights they need. All protocols use it."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from collections.abc import Set as AbstractSet

_DATA = "Unauthorized access. '{claims}' claim(s) are required to perform this operation. Resource: 'sb://{resource}'."
_READ = "{claims} claims required for this operation."
_CHANGE = "Authorization failed for specified action: {claims}."


class Right(enum.StrEnum):
    """A right that a rule can grant, in the spelling of Azure Service Bus."""

    SEND = "Send"
    LISTEN = "Listen"
    MANAGE = "Manage"


class Rights(frozenset[Right]):
    """A set of rights, and in `order` the same rights in the order they were given, as the service shows them.

    Manage implies Send and Listen. Rights that come from a set have the order of `Right`.
    """

    order: tuple[Right, ...]

    def __new__(cls, rights: Iterable[Right]) -> Rights:
        """Return the rights. Rights that come twice count once."""
        if isinstance(rights, Rights):
            return rights
        given = dict.fromkeys(sorted(rights, key=list(Right).index) if isinstance(rights, AbstractSet) else rights)
        if Right.MANAGE in given:
            given |= dict.fromkeys(Right)
        made = super().__new__(cls, given)
        made.order = tuple(given)
        return made


class Operation(enum.Enum):
    """An operation of the broker: its title, the right it needs, and the resource that the right must cover."""

    SEND = ("Send messages", Right.SEND, "queue or topic", _DATA, "Send")
    SCHEDULE = ("Schedule messages", Right.SEND, "queue or topic", _DATA, "Send")
    CANCEL_SCHEDULED = ("Cancel scheduled messages", Right.SEND, "queue or topic", _DATA, "Send")

    RECEIVE = ("Receive messages", Right.LISTEN, "queue or subscription", _DATA, "Listen")
    PEEK = ("Peek at messages", Right.LISTEN, "queue or subscription", _DATA, "Listen")
    SETTLE = (
        "Complete, abandon, defer or dead-letter a message",
        Right.LISTEN,
        "queue or subscription",
        _DATA,
        "Listen",
    )
    RENEW_LOCK = ("Renew the lock of a message or session", Right.LISTEN, "queue or subscription", _DATA, "Listen")
    RECEIVE_DEFERRED = ("Receive deferred messages", Right.LISTEN, "queue or subscription", _DATA, "Listen")
    DELETE_MESSAGES = ("Delete messages in bulk", Right.LISTEN, "queue or subscription", _DATA, "Listen")
    ACCEPT_SESSION = ("Accept a session", Right.LISTEN, "queue or subscription", _DATA, "Listen")
    LIST_SESSIONS = ("List sessions", Right.LISTEN, "queue or subscription", _DATA, "Listen")
    SESSION_STATE = ("Get or set a session's state", Right.LISTEN, "queue or subscription", _DATA, "Listen")
    READ_DROPS = (
        "Read the records of dropped duplicates and of forgets",
        Right.LISTEN,
        "queue or topic",
        _DATA,
        "Listen",
    )

    READ_RULES = (
        "List a subscription's rules",
        Right.LISTEN,
        "subscription",
        _DATA,
        "Listen,Manage,SubscriptionRuleRead",
    )
    ADD_RULE = (
        "Add a subscription's rule over AMQP",
        Right.LISTEN,
        "subscription",
        _DATA,
        "Listen,Manage,SubscriptionRuleWrite",
    )
    REMOVE_RULE = (
        "Remove a subscription's rule over AMQP",
        Right.LISTEN,
        "subscription",
        _DATA,
        "Listen,Manage,SubscriptionRuleDelete",
    )

    ENUMERATE = ("List queues, topics or subscriptions", Right.MANAGE, "the list", _READ, "Manage,EntityRead")
    READ_ENTITY = ("Read an entity's description", Right.MANAGE, "entity", _READ, "Manage,EntityRead")
    READ_REFUSALS = ("Read the record of refused requests", Right.MANAGE, "entity", _READ, "Manage,EntityRead")
    CREATE_ENTITY = ("Create an entity or rule", Right.MANAGE, "entity", _CHANGE, "Manage,EntityWrite")
    UPDATE_ENTITY = ("Change an entity or rule", Right.MANAGE, "entity", _CHANGE, "Manage,EntityWrite")
    SWITCH_ON_DETECTION = (
        "Switch on detection for an existing entity",
        Right.MANAGE,
        "queue or topic",
        _CHANGE,
        "Manage,EntityWrite",
    )
    DELETE_ENTITY = ("Delete an entity or rule", Right.MANAGE, "entity", _CHANGE, "Manage,EntityDelete")
    FORWARD_TO = (
        "Name an entity as a forwarding target",
        Right.MANAGE,
        "the target, by the supplementary token",
        _CHANGE,
        "Manage,EntityWrite",
    )
    AUTHORIZATION_RULES = (
        "Read or change authorization rules and keys",
        Right.MANAGE,
        "entity or namespace",
        _CHANGE,
        "Manage,EntityWrite",
    )
    FORGET = ("Forget the id of a message", Right.MANAGE, "queue or topic", _DATA, "Manage")
    PURGE = ("Purge messages", Right.MANAGE, "queue or subscription", _DATA, "Manage")
    RESUBMIT = ("Resubmit dead letters", Right.MANAGE, "queue or subscription", _CHANGE, "Manage,EntityWrite")

    NAMESPACE_INFO = ("Read the namespace's properties", Right.MANAGE, "namespace", _READ, "Manage,EntityRead")
    METRICS = ("Read metrics", Right.MANAGE, "namespace", _READ, "Manage,EntityRead")
    QUARANTINE = ("Read the quarantine", Right.MANAGE, "namespace", _READ, "Manage,EntityRead")
    DISCARD_QUARANTINED = ("Discard quarantined messages", Right.MANAGE, "namespace", _CHANGE, "Manage,EntityDelete")
    RELEASE_QUARANTINED = ("Release quarantined messages", Right.MANAGE, "namespace", _CHANGE, "Manage,EntityWrite")
    EXPORT = ("Export the namespace's entities", Right.MANAGE, "namespace", _READ, "Manage,EntityRead")
    DEPLOY = ("Deploy entities from a file", Right.MANAGE, "namespace", _CHANGE, "Manage,EntityWrite")

    def __init__(self, title: str, right: Right, where: str, wording: str, claims: str) -> None:
        self.title = title
        self.right = right
        self.where = where
        self._wording = wording
        self._claims = claims

    def refusal(self, resource: str) -> str:
        """Return the service's error text for a missing right. `resource` is host and path."""
        return self._wording.format(claims=self._claims, resource=resource)


def table() -> str:
    """Return the table of operations and rights, in Markdown."""
    rows = [f"| {operation.title} | {operation.right} | {operation.where} |" for operation in Operation]
    return "\n".join(["| operation | right | on |", "|---|---|---|", *rows])
