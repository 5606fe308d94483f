"""The management API of Service Bus' administration clients: runs requests and answers in Atom."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeVar
from urllib.parse import unquote
from uuid import uuid4

from starlette.responses import Response
from starlette.types import Scope

from oncebus.broker.broker import Broker
from oncebus.model.access import AccessRefused, Grant, Guard, Operation, Reason
from oncebus.model.entities import BadRequest, Catalogue, Entity, Queue, Rule, Subscription, Topic
from oncebus.model.entities.descriptions import FORWARDING, EntityKind, rules_by_name
from oncebus.model.entities.names import rule_path
from oncebus.protocols.atom.changes import FIRST_VERSION, Asker, delete, description_etag, find_entity, put, rule_etag
from oncebus.protocols.atom.descriptions import (
    FILTER_COUNTS,
    MESSAGE_SIZE,
    NAMESPACES,
    write_description,
    write_namespace,
)
from oncebus.protocols.atom.entries import AtomEntry, Site, entry_response, feed_response, read_entry
from oncebus.protocols.atom.paths import AtomKind, AtomPath, target_of
from oncebus.protocols.atom.rules import write_rule
from oncebus.protocols.http.errors import error_answer, error_response, wrong_method
from oncebus.protocols.http.limits import Limits
from oncebus.protocols.http.paths import PAGE, has_api_version, page_in, query_of
from oncebus.protocols.http.requests import HttpRequest
from oncebus.protocols.http.routes import admit, respond_safely
from oncebus.protocols.http.worker import Worker
from oncebus.protocols.management.runtime import Observer, Runtime
from oncebus.values.errors import clip

_LAST_VERSION = "2024-05"
API_VERSIONS = (FIRST_VERSION, "2021-05", _LAST_VERSION)
_HOST = "localhost"
_NOTHING = "Publicly Listed Services"
"""The title of an empty feed. By it, the client for Go knows that there is no such entity."""

_LISTS = (AtomKind.QUEUES, AtomKind.TOPICS, AtomKind.SUBSCRIPTIONS, AtomKind.RULES)
_BELOW_TOPICS = (AtomKind.SUBSCRIPTION, AtomKind.SUBSCRIPTIONS, AtomKind.RULE, AtomKind.RULES)

_SUPPLEMENTARY = dict(
    zip(FORWARDING, ("ServiceBusSupplementaryAuthorization", "ServiceBusDlqSupplementaryAuthorization"), strict=True)
)

T = TypeVar("T")


class Atom:
    """Answers the requests of administration clients."""

    def __init__(self, broker: Broker, guard: Guard, limits: Limits, observer: Observer, worker: Worker) -> None:
        self._broker = broker
        self._guard = guard
        self._limits = limits
        self._observer = observer
        self._worker = worker

    async def respond(self, request: HttpRequest) -> Response:
        """Return the response to a request; an error becomes a response too."""
        return await respond_safely(request, self._respond(request), lambda error: _answer_with_tracker(error, request))

    def owns(self, scope: Scope) -> bool:
        """Return whether a request manages entities. It has an api-version, except at the root."""
        return has_api_version(scope["query_string"]) or (scope["raw_path"] == b"/" and scope["method"] == "GET")

    async def _respond(self, request: HttpRequest) -> Response:
        if request.scope["raw_path"] == b"/" and request.method == "GET":
            return self._root(request)
        grant = await admit(request, self._guard, self._limits)
        query = query_of(request.scope["query_string"])
        target = target_of(request.scope["raw_path"])
        site = self._site(request, query)
        is_one = target.kind in (AtomKind.ENTITY, AtomKind.SUBSCRIPTION, AtomKind.RULE)
        if request.method not in (("GET", "PUT", "DELETE") if is_one else ("GET",)):
            raise wrong_method(request.method, ["GET", "PUT", "DELETE"] if is_one else ["GET"])
        if request.method == "GET" and target.name and self._broker.catalogue.find(target.name) is None:
            # As the service does, for any valid token. What is missing below a topic is 404.
            return feed_response(target.path, _NOTHING, (), site, self._broker.clock.now(), 0, PAGE, False)
        self._require(grant, request, target)
        if request.method == "PUT":
            return await self._put(request, target, grant, site)
        if request.method == "DELETE":
            await self._broker.change(delete(target, self._asker(request, grant)))
            return Response(b"", 200)
        if is_one:
            return entry_response(await self._entry(self._broker.catalogue, target, site), site)
        if target.kind is AtomKind.NAMESPACE:
            return self._namespace(site)
        return await self._list(target, query, site)

    def _require(self, grant: Grant, request: HttpRequest, target: AtomPath) -> None:
        operation = _operation(request, target)
        try:
            self._guard.require(grant, operation, target.path)
        except AccessRefused as error:
            if target.kind not in _BELOW_TOPICS or error.reason is Reason.EXPIRED:
                raise
            name = target.kind.value.capitalize()
            verb = "Enumerate" if target.kind in _LISTS else request.method.capitalize()
            raise AccessRefused(
                error.reason,
                f"SubCode=40100. Unauthorized: access is denied for the operation '{verb}{name}' on the endpoint "
                f"'sb://{request.named_host}/{target.path}'.",
            ) from None

    def _site(self, request: HttpRequest, query: dict[str, str]) -> Site:
        version = query.get("api-version", "")
        if version not in API_VERSIONS:
            raise BadRequest(f"The api-version {clip(version)} is not supported. Use one of {', '.join(API_VERSIONS)}.")
        name = self._broker.catalogue.namespace.name
        return Site(request.scope["scheme"], request.named_host or name, version, name)

    def _root(self, request: HttpRequest) -> Response:
        """Return what the service shows everybody at the root: its list of public services, which is empty."""
        site = Site(request.scope["scheme"], request.named_host or _HOST, _LAST_VERSION, "")
        return feed_response("", _NOTHING, (), site, self._broker.clock.now(), 0, PAGE, False)

    # One entity or rule

    async def _put(self, request: HttpRequest, target: AtomPath, grant: Grant, site: Site) -> Response:
        body = await request.read_whole(self._limits.description_bytes, self._limits.body_seconds)
        asker = self._asker(request, grant)
        entry = await self._worker.run(request.key, len(body), lambda: read_entry(body))
        catalogue = await self._broker.change(put(target, entry, site.api_version, asker))
        return entry_response(await self._entry(catalogue, target, site), site, 201 if asker.if_match is None else 200)

    def _asker(self, request: HttpRequest, grant: Grant) -> Asker:
        headers = request.headers
        tokens = {field: headers.get(name) for field, name in _SUPPLEMENTARY.items()}
        return Asker(self._guard, grant, headers.get("if-match"), tokens)

    async def _entry(self, catalogue: Catalogue, target: AtomPath, site: Site) -> AtomEntry:
        if target.kind is AtomKind.RULE:
            subscription = catalogue.subscription(target.name, target.subscription)
            return _rule_entry(subscription, catalogue.rule(target.name, target.subscription, target.rule))
        entity = find_entity(catalogue, target)
        return _entry_of(entity, await self._observer.runtime_of(entity), site)

    def _namespace(self, site: Site) -> Response:
        content, created, updated = write_namespace(self._broker.catalogue, self._broker.clock.now())
        return entry_response(AtomEntry("$namespaceinfo", site.author, created, updated, content), site)

    # Lists

    async def _list(self, target: AtomPath, query: dict[str, str], site: Site) -> Response:
        if "$filter" in query:
            raise BadRequest("The parameter '$filter' is not supported. List all entities, and filter them yourself.")
        skip, top = page_in(query, self._limits.page)
        catalogue = self._broker.catalogue
        entries: list[AtomEntry]
        if target.kind is AtomKind.RULES:
            subscription = catalogue.subscription(target.name, target.subscription)
            rules, has_more = _page(rules_by_name(subscription), skip, top)
            entries = [_rule_entry(subscription, rule) for rule in rules]
        else:
            kinds: dict[AtomKind, EntityKind] = {AtomKind.QUEUES: Queue, AtomKind.TOPICS: Topic}
            entities = catalogue.list_entities(kinds.get(target.kind, Subscription), target.name)
            page, has_more = _page(entities, skip, top)
            runtimes = await self._observer.runtimes_of(page)
            entries = [_entry_of(entity, runtime, site) for entity, runtime in zip(page, runtimes, strict=True)]
        now = self._broker.clock.now()
        return feed_response(target.path, target.kind.value.capitalize(), entries, site, now, skip, top, has_more)


def _answer_with_tracker(error: Exception, request: HttpRequest) -> Response:
    """Return the response to a request that failed. Its text ends as the service's texts do: clients search for it."""
    status, text, headers = error_answer(error)
    path = unquote(request.scope["raw_path"].decode("ascii", "replace"), errors="replace").strip("/")
    tracker = f"TrackingId:{uuid4()}, SystemTracker:{request.named_host or _HOST}:{path}"
    return error_response(status, f"{text} {tracker}, Timestamp:{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}", headers)


def _operation(request: HttpRequest, target: AtomPath) -> Operation:
    if request.method == "PUT":
        return Operation.UPDATE_ENTITY if "if-match" in request.headers else Operation.CREATE_ENTITY
    if request.method == "DELETE":
        return Operation.DELETE_ENTITY
    if target.kind in (AtomKind.RULE, AtomKind.RULES):
        return Operation.READ_RULES
    if target.kind is AtomKind.NAMESPACE:
        return Operation.NAMESPACE_INFO
    return Operation.ENUMERATE if target.kind in _LISTS else Operation.READ_ENTITY


def _entry_of(entity: Entity, runtime: Runtime, site: Site) -> AtomEntry:
    left_out: set[str] = {MESSAGE_SIZE} if site.api_version == FIRST_VERSION else set()
    if site.api_version != _LAST_VERSION:
        left_out.update(FILTER_COUNTS)
    content = write_description(entity, runtime, host=site.host, left_out=frozenset(left_out))
    return AtomEntry(entity.path, entity.name, entity.created_at, entity.updated_at, content, description_etag(entity))


def _rule_entry(subscription: Subscription, rule: Rule) -> AtomEntry:
    path = rule_path(subscription.topic, subscription.name, rule.name)
    content = write_rule(rule, attributes=NAMESPACES)
    return AtomEntry(path, rule.name, rule.created_at, rule.created_at, content, rule_etag(rule))


def _page(items: Sequence[T], skip: int, top: int) -> tuple[Sequence[T], bool]:
    return items[skip : skip + top], len(items) > skip + top
