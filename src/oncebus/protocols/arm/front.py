"""The Resource Manager's API: turns requests into changes or queries, and answers in JSON.

The broker is one namespace. It accepts any Azure subscription and resource group, and returns them in the ids.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from starlette.responses import Response
from starlette.types import Scope

from oncebus.broker.broker import Broker
from oncebus.model.access import Grant, Guard, Operation
from oncebus.model.access.scopes import host_of
from oncebus.model.entities import BadRequest, Catalogue, Entity, NotFound, Subscription, Topic, dotnet_timespan
from oncebus.model.entities.descriptions import forward_targets
from oncebus.protocols.arm import hosting, reading, resources
from oncebus.protocols.arm.absent import AbsentName, answer_absent, find_absent
from oncebus.protocols.arm.errors import ArmRefused, answer
from oncebus.protocols.arm.hosting import HostingKind, HostingName, find_hosting
from oncebus.protocols.arm.paths import ResourceKind, ResourceName, is_below, is_resource, resource_of
from oncebus.protocols.http.errors import Refused, wrong_method
from oncebus.protocols.http.limits import Limits
from oncebus.protocols.http.paths import page_in, query_of
from oncebus.protocols.http.requests import HttpRequest
from oncebus.protocols.http.routes import admit, respond_safely
from oncebus.protocols.http.worker import Worker
from oncebus.protocols.management.authorization import GivenRule
from oncebus.protocols.management.authorization_rules import AuthorizationRules
from oncebus.protocols.management.changes import Change, put, put_rule
from oncebus.protocols.management.reading import RESOURCE_WINDOW, Members, read_description
from oncebus.protocols.management.rules import read_rule
from oncebus.protocols.management.runtime import Observer
from oncebus.protocols.management.writing import GROUP
from oncebus.values.errors import clip

_VERSION = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(-preview)?")
_HAS_VERSION = re.compile(rb"(?:^|&)api-version=[0-9]{4}-[0-9]{2}-[0-9]{2}", re.IGNORECASE)
_HOSTING_METHODS = {HostingKind.GROUP: ("GET", "HEAD", "PUT", "PATCH"), HostingKind.REGISTER: ("POST",)}


class _Does(NamedTuple):
    operation: Operation
    handler: Callable[[HttpRequest, ResourceName, Grant], Awaitable[Response]]


class Arm:
    """Answers the requests of the Resource Manager's clients."""

    def __init__(
        self,
        broker: Broker,
        guard: Guard,
        limits: Limits,
        observer: Observer,
        authorizations: AuthorizationRules,
        worker: Worker,
        amqp_port: int | None,
    ) -> None:
        self._broker = broker
        self._guard = guard
        self._limits = limits
        self._observer = observer
        self._authorizations = authorizations
        self._worker = worker
        self._amqp_port = amqp_port
        namespace = _Does(Operation.UPDATE_ENTITY, self._put_namespace)
        rules = Operation.AUTHORIZATION_RULES
        self._table: dict[ResourceKind, dict[str, _Does]] = {
            ResourceKind.NAMESPACES: {"GET": _Does(Operation.NAMESPACE_INFO, self._list_namespaces)},
            ResourceKind.NAMESPACE: {
                "GET": _Does(Operation.NAMESPACE_INFO, self._namespace),
                "PUT": namespace,
                "PATCH": namespace,
                "DELETE": _Does(Operation.DELETE_ENTITY, self._delete_namespace),
            },
            ResourceKind.CHECK_NAME: {"POST": _Does(Operation.NAMESPACE_INFO, self._check_name)},
            ResourceKind.ENTITIES: {"GET": _Does(Operation.ENUMERATE, self._list)},
            ResourceKind.ENTITY: {
                "GET": _Does(Operation.READ_ENTITY, self._get),
                "PUT": _Does(Operation.UPDATE_ENTITY, self._put),
                "DELETE": _Does(Operation.DELETE_ENTITY, self._delete),
            },
            ResourceKind.RULES: {"GET": _Does(Operation.READ_RULES, self._rules)},
            ResourceKind.RULE: {
                "GET": _Does(Operation.READ_RULES, self._get_rule),
                "PUT": _Does(Operation.UPDATE_ENTITY, self._put_rule),
                "DELETE": _Does(Operation.DELETE_ENTITY, self._delete_rule),
            },
            ResourceKind.AUTHORIZATION_RULES: {"GET": _Does(rules, self._authorization_rules)},
            ResourceKind.AUTHORIZATION_RULE: {
                "GET": _Does(rules, self._get_authorization),
                "PUT": _Does(rules, self._put_authorization),
                "DELETE": _Does(rules, self._delete_authorization),
            },
            ResourceKind.LIST_KEYS: {"POST": _Does(rules, self._list_keys)},
            ResourceKind.REGENERATE_KEYS: {"POST": _Does(rules, self._regenerate)},
        }

    @staticmethod
    def owns(scope: Scope) -> bool:
        """Return whether a request is for the Resource Manager.

        An entity may be called `subscriptions` too. The administration clients ask for it with another form of version.
        """
        is_around = find_hosting(scope["raw_path"]) is not None or is_below(scope["raw_path"])
        return is_resource(scope["raw_path"]) or (is_around and _HAS_VERSION.search(scope["query_string"]) is not None)

    async def respond(self, request: HttpRequest) -> Response:
        """Return the response to a request; an error becomes a response too."""
        return await respond_safely(request, self._respond(request), answer)

    async def _respond(self, request: HttpRequest) -> Response:
        grant = await admit(request, self._guard, self._limits)
        version = query_of(request.scope["query_string"]).get("api-version", "")
        if not version:
            raise ArmRefused(
                400,
                "MissingApiVersionParameter",
                "The api-version query parameter (?api-version=) is required for all requests.",
            )
        if not _VERSION.fullmatch(version):
            raise ArmRefused(
                400,
                "InvalidApiVersionParameter",
                f"The api-version {clip(version)} is not valid. Write it like '2024-01-01'.",
            )
        if (around := find_hosting(request.scope["raw_path"])) is not None:
            return self._answer_hosting(request, around, grant)
        if (absent := find_absent(request.scope["raw_path"])) is not None:
            return await self._answer_absent(request, absent, grant)
        target = self._resolve_tildes(resource_of(request.scope["raw_path"]))
        methods = self._table[target.resource]
        does = methods.get(request.method)
        if does is None:
            raise wrong_method(request.method, methods)
        self._guard.require(grant, does.operation, target.path)
        if target.namespace and does.handler != self._put_namespace:
            self._check_namespace(target, 404, "ResourceNotFound", "could not be found")
        return await does.handler(request, target, grant)

    def _resolve_tildes(self, target: ResourceName) -> ResourceName:
        """Return the target with its tildes replaced by slashes, as Azure does, unless an entity with tildes exists."""
        if "~" in target.name and self._broker.catalogue.find(target.name) is None:
            return target._replace(name=target.name.replace("~", "/"))
        return target

    def _check_namespace(self, target: ResourceName, status: int, code: str, problem: str) -> None:
        name = self._broker.catalogue.namespace.name
        if target.namespace.lower() != name.lower():
            text = f"The namespace '{target.namespace}' {problem}. This broker is the namespace '{name}'."
            raise ArmRefused(status, code, text)

    async def _body(self, request: HttpRequest) -> Members:
        body = await request.read_whole(self._limits.description_bytes, self._limits.body_seconds)
        return await self._worker.run(request.key, len(body), lambda: reading.read_object(body))

    def _answer_hosting(self, request: HttpRequest, target: HostingName, grant: Grant) -> Response:
        """Answer a request about what surrounds the namespace. Any valid token may know it, except the namespace."""
        methods = _HOSTING_METHODS.get(target.kind, ("GET",))
        if request.method not in methods:
            raise wrong_method(request.method, methods)
        if target.kind is not HostingKind.RESOURCES:
            return _json(hosting.describe(target))
        self._guard.require(grant, Operation.NAMESPACE_INFO, "")
        group = f"/resourceGroups/{target.group or GROUP}/providers/Microsoft.ServiceBus"
        own = ResourceName(ResourceKind.NAMESPACE, None, f"/subscriptions/{target.subscription}{group}")
        return _json({"value": [self._namespace_resource(request, own)]})

    async def _answer_absent(self, request: HttpRequest, target: AbsentName, grant: Grant) -> Response:
        operations = {"GET": Operation.NAMESPACE_INFO, "DELETE": Operation.DELETE_ENTITY}
        self._guard.require(grant, operations.get(request.method, Operation.UPDATE_ENTITY), "")
        self._check_namespace(target.namespace, 404, "ResourceNotFound", "could not be found")
        content = answer_absent(target, request.method, await self._body(request))
        return Response(status_code=204) if content is None else _json(content)

    # The namespace

    async def _list_namespaces(self, request: HttpRequest, target: ResourceName, _: Grant) -> Response:
        return _json({"value": [self._namespace_resource(request, target)]})

    async def _namespace(self, request: HttpRequest, target: ResourceName, _: Grant) -> Response:
        return _json(self._namespace_resource(request, target))

    async def _put_namespace(self, request: HttpRequest, target: ResourceName, _: Grant) -> Response:
        body = await self._body(request)
        tier, tags = reading.read_tier(body), reading.read_tags(body)
        self._check_namespace(target, 409, "Conflict", "cannot be created")

        def how(catalogue: Catalogue, _: int) -> Catalogue:
            if tier is not None and tier is not catalogue.namespace.tier:
                catalogue = catalogue.change_tier(tier)
            return catalogue if tags in (None, catalogue.namespace.tags) else catalogue.change_tags(tags)

        await self._broker.change(how)
        return _json(self._namespace_resource(request, target))

    async def _delete_namespace(self, _: HttpRequest, target: ResourceName, __: Grant) -> Response:
        raise Refused(
            405,
            f"The namespace '{target.namespace}' cannot be deleted. Stop the broker, and remove its data folder.",
            {"allow": "GET, PUT, PATCH"},
        )

    def _namespace_resource(self, request: HttpRequest, target: ResourceName) -> resources.Resource:
        host = request.named_host or self._broker.catalogue.namespace.name
        endpoint = f"{request.scope['scheme']}://{host}/"
        return resources.namespace(self._broker.catalogue, target, endpoint, self._broker.clock.now())

    async def _check_name(self, request: HttpRequest, _: ResourceName, __: Grant) -> Response:
        name, own = reading.read_name(await self._body(request)), self._broker.catalogue.namespace.name
        is_own = name.lower() == own.lower()
        return _json(
            {
                "nameAvailable": False,
                "reason": "NameInUse" if is_own else "TooManyNamespaceInCurrentSubscription",
                "message": f"This broker has only the namespace '{own}'.",
            }
        )

    # Queues, topics, subscriptions

    async def _get(self, _: HttpRequest, target: ResourceName, __: Grant) -> Response:
        return await self._answer_entity(self._broker.catalogue, target)

    async def _put(self, request: HttpRequest, target: ResourceName, grant: Grant) -> Response:
        properties = reading.properties_of(await self._body(request))
        new = target.blank
        given, window = read_description(properties, type(new)), reading.read_window(properties, type(new))

        def permit(old: Entity | None, new: Entity) -> None:
            self._guard.require_forwarding(grant, forward_targets(old), forward_targets(new))

        def how(catalogue: Catalogue, now: int) -> Catalogue:
            if isinstance(new, Subscription):
                _check_window(window, catalogue.topic(new.topic))
            return put(new, given, permit)(catalogue, now)

        return await self._answer_entity(await self._broker.change(how), target)

    async def _delete(self, _: HttpRequest, target: ResourceName, __: Grant) -> Response:
        return await self._change_if_found(lambda catalogue, _: catalogue.delete(target.blank))

    async def _change_if_found(self, change: Change) -> Response:
        try:
            await self._broker.change(change)
        except NotFound:
            return Response(status_code=204)
        return Response(b"", 200)

    async def _answer_entity(self, catalogue: Catalogue, target: ResourceName) -> Response:
        entity = catalogue.get(target.path, type(target.blank))
        runtime = await self._observer.runtime_of(entity)
        return _json(resources.entity(entity, runtime, catalogue, target))

    async def _list(self, request: HttpRequest, target: ResourceName, _: Grant) -> Response:
        catalogue = self._broker.catalogue
        entities = catalogue.list_entities(type(target.blank), target.name)
        skip, top = page_in(query_of(request.scope["query_string"]), self._limits.page)
        page = entities[skip : skip + top]
        runtimes = await self._observer.runtimes_of(page)
        pairs = zip(page, runtimes, strict=True)
        values = [resources.entity(entity, runtime, catalogue, target) for entity, runtime in pairs]
        return self._answer_page(request, values, len(entities), skip, top)

    def _answer_page(
        self, request: HttpRequest, values: list[resources.Resource], count: int, skip: int, top: int
    ) -> Response:
        content: resources.Resource = {"value": values}
        if skip + top < count:
            version = query_of(request.scope["query_string"])["api-version"]
            host = request.named_host or self._broker.catalogue.namespace.name
            path = request.scope["raw_path"].decode("ascii", "replace")
            query = f"api-version={version}&$skip={skip + top}&$top={top}"
            content["nextLink"] = f"{request.scope['scheme']}://{host}{path}?{query}"
        return _json(content)

    # Rules

    async def _rules(self, request: HttpRequest, target: ResourceName, _: Grant) -> Response:
        owner = self._broker.catalogue.subscription(target.name, target.subscription)
        skip, top = page_in(query_of(request.scope["query_string"]), self._limits.page)
        values = [resources.rule(rule, owner, target) for rule in owner.rules[skip : skip + top]]
        return self._answer_page(request, values, len(owner.rules), skip, top)

    async def _get_rule(self, _: HttpRequest, target: ResourceName, __: Grant) -> Response:
        return _rule(self._broker.catalogue, target)

    async def _put_rule(self, request: HttpRequest, target: ResourceName, _: Grant) -> Response:
        rule = read_rule(reading.properties_of(await self._body(request)), target.rule)
        return _rule(await self._broker.change(put_rule(target.name, target.subscription, rule)), target)

    async def _delete_rule(self, _: HttpRequest, target: ResourceName, __: Grant) -> Response:
        return await self._change_if_found(
            lambda catalogue, _: catalogue.delete_rule(target.name, target.subscription, target.rule)
        )

    # Authorization rules and keys

    async def _authorization_rules(self, _: HttpRequest, target: ResourceName, __: Grant) -> Response:
        owner, rules = self._identify(target), self._authorizations.of(target.owner)
        return _json({"value": [resources.authorization_rule(rule, owner) for rule in rules]})

    async def _get_authorization(self, _: HttpRequest, target: ResourceName, __: Grant) -> Response:
        return self._authorization(target)

    async def _put_authorization(self, request: HttpRequest, target: ResourceName, _: Grant) -> Response:
        rights = reading.read_rule_rights(await self._body(request))
        await self._authorizations.put(target.owner, GivenRule(target.rule, rights))
        return self._authorization(target)

    async def _delete_authorization(self, _: HttpRequest, target: ResourceName, __: Grant) -> Response:
        is_deleted = await self._authorizations.delete(target.owner, target.rule)
        return Response(b"", 200) if is_deleted else Response(status_code=204)

    async def _list_keys(self, request: HttpRequest, target: ResourceName, _: Grant) -> Response:
        return self._keys(request, target)

    async def _regenerate(self, request: HttpRequest, target: ResourceName, _: Grant) -> Response:
        which, key = reading.read_new_key(await self._body(request))
        await self._authorizations.regenerate(target.owner, target.rule, which, key)
        return self._keys(request, target)

    def _authorization(self, target: ResourceName) -> Response:
        rule = self._authorizations.get(target.owner, target.rule)
        return _json(resources.authorization_rule(rule, self._identify(target)))

    def _identify(self, target: ResourceName) -> resources.Identity:
        owner = None if target.kind is None else self._broker.catalogue.get(target.path, target.kind)
        return resources.identify(owner, target)

    def _keys(self, request: HttpRequest, target: ResourceName) -> Response:
        rule = self._authorizations.get(target.owner, target.rule)
        host = request.named_host or self._broker.catalogue.namespace.name
        entity = None if target.kind is None else self._broker.catalogue.get(target.path, target.kind).name
        is_plain = request.scope["scheme"] == "http"
        return _json(resources.access_keys(rule, host_of(host), self._amqp_port, is_plain, entity))


def _json(content: resources.Resource) -> Response:
    # ASCII, so that half of a surrogate pair in a text does not fail.
    return Response(json.dumps(content).encode(), media_type="application/json")


def _rule(catalogue: Catalogue, target: ResourceName) -> Response:
    owner = catalogue.subscription(target.name, target.subscription)
    rule = catalogue.rule(target.name, target.subscription, target.rule)
    return _json(resources.rule(rule, owner, target))


def _check_window(window: int | None, topic: Topic) -> None:
    if window is not None and window != topic.duplicate_detection_history_time_window:
        raise BadRequest(
            f"The property '{RESOURCE_WINDOW}' of a subscription is its topic's. Topic '{topic.name}' has"
            f" {dotnet_timespan(topic.duplicate_detection_history_time_window)}.\nActual value was"
            f" {dotnet_timespan(window)}."
        )
