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


_SENDING = (Right.SEND, "queue or topic", _DATA, "Send")
_RECEIVING = (Right.LISTEN, "queue or subscription", _DATA, "Listen")
_RULES = (Right.LISTEN, "subscription", _DATA)
_READING = (_READ, "Manage,EntityRead")
_WRITING = (_CHANGE, "Manage,EntityWrite")
_DELETING = (_CHANGE, "Manage,EntityDelete")


class Operation(enum.Enum):
    """An operation of the broker: its title, the right it needs, and the resource that the right must cover."""

    SEND = ("Send messages", *_SENDING)
    SCHEDULE = ("Schedule messages", *_SENDING)
    CANCEL_SCHEDULED = ("Cancel scheduled messages", *_SENDING)

    RECEIVE = ("Receive messages", *_RECEIVING)
    PEEK = ("Peek at messages", *_RECEIVING)
    SETTLE = ("Complete, abandon, defer or dead-letter a message", *_RECEIVING)
    RENEW_LOCK = ("Renew the lock of a message or session", *_RECEIVING)
    RECEIVE_DEFERRED = ("Receive deferred messages", *_RECEIVING)
    DELETE_MESSAGES = ("Delete messages in bulk", *_RECEIVING)
    ACCEPT_SESSION = ("Accept a session", *_RECEIVING)
    LIST_SESSIONS = ("List sessions", *_RECEIVING)
    SESSION_STATE = ("Get or set a session's state", *_RECEIVING)
    READ_DROPS = (
        "Read the records of dropped duplicates and of forgets",
        Right.LISTEN,
        "queue or topic",
        _DATA,
        "Listen",
    )

    READ_RULES = ("List a subscription's rules", *_RULES, "Listen,Manage,SubscriptionRuleRead")
    ADD_RULE = ("Add a subscription's rule over AMQP", *_RULES, "Listen,Manage,SubscriptionRuleWrite")
    REMOVE_RULE = ("Remove a subscription's rule over AMQP", *_RULES, "Listen,Manage,SubscriptionRuleDelete")

    ENUMERATE = ("List queues, topics or subscriptions", Right.MANAGE, "the list", *_READING)
    READ_ENTITY = ("Read an entity's description", Right.MANAGE, "entity", *_READING)
    READ_REFUSALS = ("Read the record of refused requests", Right.MANAGE, "entity", *_READING)
    CREATE_ENTITY = ("Create an entity or rule", Right.MANAGE, "entity", *_WRITING)
    UPDATE_ENTITY = ("Change an entity or rule", Right.MANAGE, "entity", *_WRITING)
    SWITCH_ON_DETECTION = ("Switch on detection for an existing entity", Right.MANAGE, "queue or topic", *_WRITING)
    DELETE_ENTITY = ("Delete an entity or rule", Right.MANAGE, "entity", *_DELETING)
    FORWARD_TO = (
        "Name an entity as a forwarding target",
        Right.MANAGE,
        "the target, by the supplementary token",
        *_WRITING,
    )
    AUTHORIZATION_RULES = (
        "Read or change authorization rules and keys",
        Right.MANAGE,
        "entity or namespace",
        *_WRITING,
    )
    FORGET = ("Forget the id of a message", Right.MANAGE, "queue or topic", _DATA, "Manage")
    PURGE = ("Purge messages", Right.MANAGE, "queue or subscription", _DATA, "Manage")
    RESUBMIT = ("Resubmit dead letters", Right.MANAGE, "queue or subscription", *_WRITING)

    NAMESPACE_INFO = ("Read the namespace's properties", Right.MANAGE, "namespace", *_READING)
    METRICS = ("Read metrics", Right.MANAGE, "namespace", *_READING)
    QUARANTINE = ("Read the quarantine", Right.MANAGE, "namespace", *_READING)
    DISCARD_QUARANTINED = ("Discard quarantined messages", Right.MANAGE, "namespace", *_DELETING)
    RELEASE_QUARANTINED = ("Release quarantined messages", Right.MANAGE, "namespace", *_WRITING)
    RESET = ("Reset a broker that is there for tests", Right.MANAGE, "namespace", *_DELETING)
    BACK_UP = ("Make a snapshot of all data, in the data folder", Right.MANAGE, "namespace", *_READING)
    EXPORT = ("Export the namespace's entities", Right.MANAGE, "namespace", *_READING)
    DEPLOY = ("Deploy entities from a file", Right.MANAGE, "namespace", *_WRITING)

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
