"""Deployments over HTTP, as in the Resource Manager:

    PUT   /subscriptions/{s}/resourceGroups/{g}/providers/Microsoft.Resources/deployments/{name}            deploys
    POST  …/deployments/{name}/whatIf                                                                   shows changes
    POST  …/deployments/{name}/validate                                                                     checks only
    POST  /subscriptions/{s}/resourceGroups/{g}/exportTemplate                                              exports

    GET   …/deployments[/{name}]        HEAD, DELETE …/{name}       POST …/{name}/exportTemplate, …/{name}/cancel
    GET   …/deployments/{name}/operations[/{id}]                                                     what was done

The body of the first three is {"properties": {"mode": "Incremental", "template": {…}, "parameters": {…}}}. A deployment
is complete when its response arrives. The newest ones are kept in memory. az leaves out the provider for operations.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote

from starlette.responses import Response
from starlette.types import Scope

from oncebus.broker.broker import Broker
from oncebus.model.access import Guard, Operation
from oncebus.model.access.scopes import host_of
from oncebus.protocols.arm import errors
from oncebus.protocols.arm.errors import ArmRefused, bad_content
from oncebus.protocols.http.errors import Refused, wrong_method
from oncebus.protocols.http.limits import Limits
from oncebus.protocols.http.requests import HttpRequest
from oncebus.protocols.http.routes import admit, respond_safely
from oncebus.protocols.http.times import iso8601
from oncebus.protocols.management.authorization_rules import AuthorizationRules
from oncebus.protocols.management.changes import PlanOutdated, apply
from oncebus.protocols.management.difference import Effect, ResourceChange, changes_of
from oncebus.protocols.management.documents import (
    LARGEST,
    Object,
    find,
    is_object,
    kind_of,
    parse_document,
    quote_member,
)
from oncebus.protocols.management.planning import Plan
from oncebus.protocols.management.problems import Fault, FileRefused, Problems
from oncebus.protocols.templates.export import export
from oncebus.protocols.templates.history import History, Made
from oncebus.protocols.templates.outputs import Deployed, KeysOf, keys_in_json
from oncebus.protocols.templates.scope import Deployment, StepBudget, Value
from oncebus.protocols.templates.template import plan_template, read_outputs
from oncebus.values.errors import clip

MOST_ATTEMPTS = 5
"""The maximum number of attempts to deploy while other changes make the plan outdated."""
DEADLINE_SECONDS = 20.0
"""The time limit to read and plan a template. Evaluation checks it regularly, so the client hardly waits longer."""
MOST_WAITING = 8
"""The maximum number of requests with a template that wait at the same time. They are processed one after the other."""

_TYPE = "Microsoft.Resources/deployments"
_PATH = re.compile(
    rb"/subscriptions/(?P<subscription>[^/]+)/resourcegroups/(?P<group>[^/]+)/"
    rb"(?:(?:providers/microsoft\.resources/)?deployments(?:/(?P<name>[^/]+)"
    rb"(?P<action>/whatif|/validate|/cancel|/exporttemplate|/operations(?:/(?P<operation>[^/]+))?)?)?"
    rb"|(?P<export>exporttemplate))/?",
    re.IGNORECASE,
)


Done = TypeVar("Done")


class _Does(NamedTuple):
    operation: Operation
    handler: Callable[[HttpRequest, Deployment], Awaitable[Response]]


class Deployments:
    """Answers requests for deployments and exports."""

    def __init__(
        self,
        broker: Broker,
        guard: Guard,
        limits: Limits,
        rules: AuthorizationRules,
        amqp_port: int | None = None,
    ) -> None:
        self._broker = broker
        self._guard = guard
        self._limits = limits
        self._rules = rules
        self._amqp_port = amqp_port
        self._history = History()
        # With a thread of its own, a slow template delays other templates only.
        self._thread = broker.threads.own("templates")
        self._waiting = 0
        made = Operation.DEPLOY
        self._table: dict[str, dict[str, _Does]] = {
            "deployments": {"GET": _Does(made, self._list)},
            "": {
                "PUT": _Does(made, self._deploy),
                "GET": _Does(made, self._show),
                "HEAD": _Does(made, self._exists),
                "DELETE": _Does(made, self._forget),
            },
            "/whatif": {"POST": _Does(made, self._what_if)},
            "/validate": {"POST": _Does(made, self._validate)},
            "/cancel": {"POST": _Does(made, self._cancel)},
            "/exporttemplate": {"POST": _Does(made, self._show_template)},
            "/operations": {"GET": _Does(made, self._operations)},
            "export": {"POST": _Does(Operation.EXPORT, self._export)},
        }

    @staticmethod
    def owns(scope: Scope) -> bool:
        """Return whether a path belongs to deployments."""
        return _PATH.fullmatch(scope.get("raw_path") or b"") is not None

    async def respond(self, request: HttpRequest) -> Response:
        """Return the response to a request; an error becomes a response too."""
        return await respond_safely(request, self._respond(request), _answer)

    async def _respond(self, request: HttpRequest) -> Response:
        grant = await admit(request, self._guard, self._limits)
        action, deployment = _target_of(request.scope["raw_path"])
        does = self._table[action].get(request.method)
        if does is None:
            raise wrong_method(request.method, self._table[action])
        self._guard.require(grant, does.operation, "")
        return await does.handler(request, deployment)

    async def _deploy(self, request: HttpRequest, deployment: Deployment) -> Response:
        template, given = await self._template(request)
        keys_of = self._keys_of(request)
        for _ in range(MOST_ATTEMPTS):
            planned = await self._plan(template, given, deployment)
            # An output that cannot be evaluated is found before anything is changed.
            await self._outputs(template, given, deployment, self._planned(planned, keys_of))
            try:
                await apply(planned, self._broker, self._rules)
            except PlanOutdated:
                continue
            rules = tuple(self._rules.of(None))
            outputs = await self._outputs(template, given, deployment, Deployed(planned.after, rules, keys_of))
            result = self._result(planned, deployment)
            ids = [each["resourceId"] for each in result["changes"] if "after" in each]
            answer = {
                "id": f"{deployment.group_id}/providers/{_TYPE}/{deployment.name}",
                "name": deployment.name,
                "type": _TYPE,
                "properties": {
                    "provisioningState": "Succeeded",
                    "mode": "Incremental",
                    "timestamp": iso8601(self._broker.clock.now()),
                    "outputs": outputs,
                    "outputResources": [{"id": each} for each in ids],
                    **result,
                },
            }
            operations = [_operation(answer, at, id) for at, id in enumerate(ids, start=1)]  # noqa: A001
            made = self._history.add(deployment.group, deployment.name, answer, template, operations)
            return _written(made.answer)
        raise ArmRefused(409, "DeploymentActive", "Other changes to the namespace kept interfering. Deploy again.")

    async def _what_if(self, request: HttpRequest, deployment: Deployment) -> Response:
        template, given = await self._template(request)
        planned = await self._plan(template, given, deployment)
        return _json({"status": "Succeeded", "properties": self._result(planned, deployment)})

    async def _validate(self, request: HttpRequest, deployment: Deployment) -> Response:
        template, given = await self._template(request)
        planned = await self._plan(template, given, deployment)
        keys_of = self._keys_of(request)
        await self._outputs(template, given, deployment, self._planned(planned, keys_of))
        diagnostics = self._result(planned, deployment)["diagnostics"]
        return _json({"properties": {"provisioningState": "Succeeded", "diagnostics": diagnostics}})

    # Deployments that were made

    async def _list(self, _: HttpRequest, deployment: Deployment) -> Response:
        return _written(b'{"value": [%b]}' % b", ".join(made.answer for made in self._history.of(deployment.group)))

    async def _show(self, _: HttpRequest, deployment: Deployment) -> Response:
        return _written(self._made(deployment).answer)

    async def _exists(self, _: HttpRequest, deployment: Deployment) -> Response:
        self._made(deployment)
        return Response(status_code=204)

    async def _forget(self, _: HttpRequest, deployment: Deployment) -> Response:
        self._history.remove(deployment.group, deployment.name)
        return Response(status_code=204)

    async def _show_template(self, _: HttpRequest, deployment: Deployment) -> Response:
        return _written(b'{"template": %b}' % self._made(deployment).template)

    async def _cancel(self, _: HttpRequest, deployment: Deployment) -> Response:
        self._made(deployment)
        text = f"The deployment '{deployment.name}' cannot be cancelled: it is complete."
        raise ArmRefused(409, "DeploymentCannotBeCancelled", text)

    async def _operations(self, request: HttpRequest, deployment: Deployment) -> Response:
        operations, wanted = self._made(deployment).operations, _operation_in(request.scope["raw_path"])
        if wanted is None:
            return _written(b'{"value": %b}' % operations)
        for operation in json.loads(operations):
            if operation["operationId"] == wanted:
                return _json(operation)
        text = f"The operation {clip(wanted)} of the deployment '{deployment.name}' could not be found."
        raise ArmRefused(404, "DeploymentOperationNotFound", text)

    def _made(self, deployment: Deployment) -> Made:
        made = self._history.get(deployment.group, deployment.name)
        if made is None:
            raise ArmRefused(404, "DeploymentNotFound", f"Deployment '{deployment.name}' could not be found.")
        return made

    # What requests contain

    async def _export(self, request: HttpRequest, _: Deployment) -> Response:
        # The body selects resources of the group. It has no effect: the only namespace is always exported as a whole.
        await self._body(request)
        exported = export(self._broker.catalogue, {rule.name: rule for rule in self._rules.of(None)}.values())
        answer: Object = {"template": exported.template}
        if exported.warnings:
            answer["error"] = {
                "code": "ExportTemplateCompletedWithErrors",
                "message": "Some parts of the namespace cannot be written as a template.",
                "details": [{"code": "NotExported", "message": text} for text in exported.warnings],
            }
        return _json(answer)

    async def _template(self, request: HttpRequest) -> tuple[Value, Value]:
        """Return the template and the parameter values in a request."""
        body = await self._body(request)
        properties = find(body, "properties")
        if not is_object(properties):
            raise bad_content(f"The member 'properties' is {kind_of(properties)}. Not an object.")
        mode = find(properties, "mode")
        if mode is not None and str(mode).lower() != "incremental":
            raise bad_content(f"The mode {clip(mode)} is not supported. Use Incremental, which deletes nothing.")
        for name in ("templateLink", "parametersLink"):
            if find(properties, name) is not None:
                raise bad_content(f"The member '{name}' is not supported. Send the content itself.")
        if find(properties, "template") is None:
            raise bad_content("The member 'template' is missing.")
        values = find(properties, "parameters")
        return find(properties, "template"), {} if values is None else values

    async def _body(self, request: HttpRequest) -> Object:
        body = await request.read_whole(LARGEST, self._limits.body_seconds)
        try:
            content = await self._in_thread(lambda _: _parse(body or b"{}"))
        except Fault as error:
            raise bad_content(f"The body of the request is not JSON: {error}") from None
        if not is_object(content):
            raise bad_content(f"The body of the request is {kind_of(content)}. Not an object.")
        return content

    def _planned(self, planned: Plan, keys_of: KeysOf) -> Deployed:
        """Return the resources as they will be. New rules of the namespace do not have their final keys yet."""
        return Deployed(planned.after, planned.authorizations or tuple(self._rules.of(None)), keys_of)

    def _keys_of(self, request: HttpRequest) -> KeysOf:
        host = host_of(request.named_host or self._broker.catalogue.namespace.name)
        return keys_in_json(host, self._amqp_port, request.scope["scheme"] == "http")

    async def _outputs(self, template: Value, given: Value, deployment: Deployment, deployed: Deployed) -> Object:
        """Return the outputs of a template. Raises `FileRefused` with all their problems."""

        def work(is_late: Callable[[], bool]) -> Object:
            problems = Problems()
            outputs = read_outputs(template, given, problems, deployed, deployment, StepBudget(is_late=is_late))
            problems.check()
            return outputs

        return await self._in_thread(work)

    async def _plan(self, template: Value, given: Value, deployment: Deployment) -> Plan:
        rules = self._rules.changeable()
        catalogue, now = self._broker.catalogue, self._broker.clock.now()

        def work(is_late: Callable[[], bool]) -> Plan:
            return plan_template(
                template, given, catalogue, now, deployment=deployment, namespace_rules=rules, is_late=is_late
            )

        return await self._in_thread(work)

    async def _in_thread(self, work: Callable[[Callable[[], bool]], Done]) -> Done:
        """Return the result of `work`, which runs in a thread.

        `work` gets a function that returns whether the deadline has passed.
        """
        if self._waiting >= MOST_WAITING:
            raise Refused(503, "The server is busy: too many templates are deployed at the same time.")
        loop = asyncio.get_running_loop()
        self._waiting += 1
        deadline = loop.time() + DEADLINE_SECONDS
        job = self._thread.run(work, lambda: loop.time() > deadline)
        job.add_done_callback(self._finish)
        try:
            return await asyncio.wait_for(asyncio.shield(job), DEADLINE_SECONDS + 1)
        except asyncio.CancelledError:
            # Nobody waits for the result any more.
            deadline = 0
            raise
        except TimeoutError:
            raise ArmRefused(
                400,
                "InvalidTemplate",
                f"Reading the template takes more than {DEADLINE_SECONDS:.0f} s. Make it smaller.",
            ) from None

    def _finish(self, job: asyncio.Future[Any]) -> None:
        self._waiting -= 1
        # Nobody may be left to hear of its error.
        job.exception()

    def _result(self, planned: Plan, deployment: Deployment) -> Object:
        """Return the changes and warnings of a plan, in the Resource Manager's format."""
        name = planned.after.namespace.name
        scope = f"{deployment.group_id}/providers/Microsoft.ServiceBus/namespaces/{name}"
        warnings = list(planned.wanted.warnings)
        if planned.wanted.namespace is not None and planned.wanted.namespace.lower() != name.lower():
            warnings.append(
                f"The template names the namespace '{planned.wanted.namespace}', but is deployed to '{name}'."
            )
        tier = planned.after.namespace.tier
        if tier is not planned.before.namespace.tier:
            warnings.append(
                f"The tier becomes {tier}. If the broker has the setting 'tier', change it too, because "
                "it applies at every start."
            )
        return {
            "changes": [_write_change(change, scope) for change in changes_of(planned)],
            "diagnostics": [{"level": "Warning", "code": "Note", "message": text} for text in warnings],
        }


def _target_of(raw_path: bytes) -> tuple[str, Deployment]:
    match = _PATH.fullmatch(raw_path)
    assert match is not None
    texts = {name: unquote((text or b"").decode("latin-1")) for name, text in match.groupdict().items()}
    action = "export" if match["export"] else "deployments"
    if match["name"] is not None:
        action = "/operations" if match["operation"] is not None else texts["action"].lower()
    return action, Deployment(texts["name"], texts["subscription"], texts["group"])


def _operation_in(raw_path: bytes) -> str | None:
    match = _PATH.fullmatch(raw_path)
    return unquote(match["operation"].decode("latin-1")) if match is not None and match["operation"] else None


def _operation(answer: Object, number: int, resource: str) -> Object:
    """Return what a deployment did to one resource."""
    return {
        "id": f"{answer['id']}/operations/{number}",
        "operationId": str(number),
        "properties": {
            "provisioningOperation": "Create",
            "provisioningState": "Succeeded",
            "timestamp": answer["properties"]["timestamp"],
            "statusCode": "OK",
            "targetResource": {"id": resource},
        },
    }


def _parse(body: bytes) -> Value:
    try:
        return parse_document(body)
    except Fault:
        try:
            return parse_document(quote_member(body.decode("utf-8-sig"), "template"))
        except (Fault, UnicodeDecodeError):
            pass
        # The text as it came has the better error.
        raise


def _write_change(change: ResourceChange, scope: str) -> Object:
    resource = f"{scope}/{change.id}" if change.id else scope
    written: Object = {"resourceId": resource, "changeType": change.effect.value}
    written |= {name: state for name in ("before", "after") if (state := getattr(change, name)) is not None}
    if change.effect is Effect.MODIFY:
        written["delta"] = _delta(change.before or {}, change.after or {})
    return written


def _delta(before: Object, after: Object) -> list[Object]:
    delta = []
    for name in dict.fromkeys((*after, *before)):
        if before.get(name) != after.get(name):
            kind = "Create" if name not in before else "Delete" if name not in after else "Modify"
            values = {"before": before.get(name), "after": after.get(name)}
            delta.append({"path": name, "propertyChangeType": kind, **values})
    return delta


def _answer(error: Exception) -> Response:
    if not isinstance(error, FileRefused):
        return errors.answer(error)
    count = len(error.problems)
    details: list[dict[str, Any]] = [
        {"code": "InvalidTemplate", "target": problem.path, "message": problem.text} for problem in error.problems
    ]
    text = f"The template cannot be deployed: {'1 error' if count == 1 else f'{count} errors'}. Nothing was changed."
    return _json({"error": {"code": "InvalidTemplate", "message": text, "details": details}}, 400)


def _json(content: Object, status: int = 200) -> Response:
    # ASCII, so that half of a surrogate pair in a text does not fail.
    return _written(json.dumps(content).encode(), status)


def _written(content: bytes, status: int = 200) -> Response:
    return Response(content, status, media_type="application/json")
