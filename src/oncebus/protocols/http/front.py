"""Operations on messages, and the state of the broker. Each request becomes a call to the broker."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import NamedTuple

from prometheus_client import Metric
from starlette.responses import JSONResponse, Response
from starlette.types import Scope

from oncebus.broker.addresses import Address, parse_address, sent_path
from oncebus.broker.broker import Broker
from oncebus.broker.sending import batch_too_large, message_too_large
from oncebus.broker.waiting import Patience
from oncebus.engine.store import Action, Mode, Outcome, Settlement, SubQueue
from oncebus.model.access import Guard, Operation
from oncebus.model.entities import BadRequest, Entity, NotFound, Queue, Topic, iso_timespan, parse_timespan
from oncebus.protocols.http import receiving, sending
from oncebus.protocols.http.errors import LOCK_LOST, Refused, answer, wrong_method
from oncebus.protocols.http.limits import Limits
from oncebus.protocols.http.paths import (
    HEALTH,
    LAST_NUMBER,
    LIVE,
    READY,
    MessagePath,
    Shape,
    find_target,
    has_api_version,
    lock_path,
    number_in,
    numbers_in,
    only_looks_like_a_lock,
    target_of,
    token_of,
)
from oncebus.protocols.http.records import (
    decision_record,
    drops_page,
    forget_record,
    forgets_page,
    purge_record,
    quarantine_page,
    refusals_page,
)
from oncebus.protocols.http.rendering import Renderer
from oncebus.protocols.http.requests import HttpRequest, unless_gone
from oncebus.protocols.http.routes import admit, respond_safely
from oncebus.protocols.http.times import iso8601, parse_time
from oncebus.protocols.management.properties import BY_FIELD
from oncebus.protocols.management.reading import RESOURCE_WINDOW
from oncebus.protocols.monitoring.health import HEALTHY, LIVING, Health
from oncebus.protocols.monitoring.metrics import CONTENT_TYPE, metrics
from oncebus.values.errors import OncebusError, clip

Reset = Callable[[], Awaitable[object]]
"""Makes a broker as it was at its start."""


class _Does(NamedTuple):
    operation: Operation
    handler: Callable[[HttpRequest, MessagePath], Awaitable[Response]]


class Front:
    """Answers the requests that no other front owns."""

    def __init__(
        self,
        broker: Broker,
        guard: Guard,
        limits: Limits,
        other_metrics: Callable[[], Iterable[Metric]],
        renderer: Renderer,
        reset: Reset | None,
    ) -> None:
        self._broker = broker
        self._do_reset = reset
        self._renderer = renderer
        self._worker = renderer.worker
        self._limits = limits
        self._guard = guard
        self._other_metrics = other_metrics
        self._health = Health(broker, lag=limits.lag, heartbeat=limits.heartbeat)
        self._table: dict[Shape, dict[str, _Does]] = {
            Shape.MESSAGES: {"POST": _Does(Operation.SEND, self._send)},
            Shape.HEAD: {
                "POST": _Does(Operation.RECEIVE, partial(self._receive, Mode.PEEK_LOCK)),
                "DELETE": _Does(Operation.RECEIVE, partial(self._receive, Mode.RECEIVE_AND_DELETE)),
            },
            Shape.LOCK: {
                "DELETE": _Does(Operation.SETTLE, partial(self._settle, Action.COMPLETE)),
                "PUT": _Does(Operation.SETTLE, partial(self._settle, Action.ABANDON)),
                "POST": _Does(Operation.RENEW_LOCK, self._renew),
            },
            Shape.PEEK: {
                "GET": _Does(Operation.PEEK, self._peek),
                "DELETE": _Does(Operation.PURGE, self._purge),
            },
            Shape.DUPLICATES: {"GET": _Does(Operation.READ_DROPS, self._drops)},
            Shape.FORGETS: {
                "GET": _Does(Operation.READ_DROPS, self._forgets),
                "POST": _Does(Operation.FORGET, self._forget),
            },
            Shape.REFUSALS: {"GET": _Does(Operation.READ_REFUSALS, self._refusals)},
            Shape.DETECTION: {"POST": _Does(Operation.SWITCH_ON_DETECTION, self._switch_on_detection)},
            Shape.METRICS: {"GET": _Does(Operation.METRICS, self._metrics)},
            Shape.RESET: {"POST": _Does(Operation.RESET, self._reset)},
            Shape.SNAPSHOT: {"POST": _Does(Operation.BACK_UP, self._snapshot)},
            Shape.QUARANTINE: {
                "GET": _Does(Operation.QUARANTINE, self._quarantine),
                "DELETE": _Does(
                    Operation.DISCARD_QUARANTINED, partial(self._decide, broker.quarantine.discard, "discarded")
                ),
                "POST": _Does(
                    Operation.RELEASE_QUARANTINED, partial(self._decide, broker.quarantine.release, "released")
                ),
            },
        }

    def takes(self, scope: Scope) -> bool:
        """Return whether a request is an operation on messages even though it has an api-version.

        An entity may have the same name as an operation. Management requests for it are recognized by their
        api-version.
        """
        try:
            target = find_target(scope["raw_path"])
        except OncebusError:
            # The caller gets the error when the request is answered, after authentication.
            return True
        if target is None or scope["method"] not in self._table[target.shape]:
            return False
        return target.shape is not Shape.METRICS and not only_looks_like_a_lock(target)

    async def respond(self, request: HttpRequest) -> Response:
        """Return the response to a request; an error becomes a response too."""

        def answer_to(error: Exception) -> Response:
            response = answer(error)
            self._note(request, error)
            return response

        return await respond_safely(request, self._respond(request), answer_to)

    def _note(self, request: HttpRequest, error: Exception) -> None:
        """Record a refusal if the request was an operation on messages."""
        try:
            target = find_target(request.scope["raw_path"])
        except OncebusError:
            return
        if target is not None and target.entity and not has_api_version(request.scope["query_string"]):
            self._broker.note_refusal(target.entity, error)

    async def _respond(self, request: HttpRequest) -> Response:
        raw_path: bytes = request.scope["raw_path"]
        if raw_path in (HEALTH, LIVE, READY) and not has_api_version(request.scope["query_string"]):
            return self._health_response(request.method, raw_path)
        grant = await admit(request, self._guard, self._limits)
        target = target_of(raw_path)
        methods = self._table[target.shape]
        does = methods.get(request.method)
        if does is None:
            raise wrong_method(request.method, methods)
        below = "messages" if target.shape in (Shape.MESSAGES, Shape.HEAD, Shape.LOCK) else ""
        self._guard.require(grant, does.operation, target.entity, below)
        return await does.handler(request, target)

    def _health_response(self, method: str, raw_path: bytes) -> Response:
        if method not in ("GET", "HEAD"):
            raise wrong_method(method, ["GET", "HEAD"])
        if raw_path == LIVE:
            # This ignores the pipeline: a monitor must not restart the gateway because the pipeline is slow.
            return JSONResponse({"status": "healthy", "message": LIVING})
        problem = self._health.problem()
        if problem is None:
            return JSONResponse({"status": "healthy", "message": HEALTHY})
        return JSONResponse({"status": "unhealthy", "message": problem}, 503)

    # Messages

    async def _send(self, request: HttpRequest, target: MessagePath) -> Response:
        path = sent_path(parse_address(target.entity))
        most = self._broker.catalogue.largest_message(self._find(path))
        content_type = request.headers.get("content-type")
        if sending.is_batch(content_type):
            largest = min(self._limits.batch_bytes, sending.longest_json(most))
            body = await request.read_body(largest, self._limits.body_seconds)
            if body is None:
                raise batch_too_large(_size_of(request, largest), largest)
            work = partial(sending.batch, body, self._limits.batch_messages, most)
            messages = await self._worker.run(request.key, len(body), work)
        else:
            body = await request.read_body(most, self._limits.body_seconds)
            if body is None:
                raise message_too_large(path, _size_of(request, most), most)
            messages = [sending.message(request.written_headers, content_type, body)]
        await self._broker.send(path, messages)
        return Response(b"", 201, {"content-type": content_type} if content_type else None)

    def _find(self, path: str) -> Entity:
        entity = self._broker.catalogue.find(path)
        if entity is None:
            raise NotFound(path)
        return entity

    async def _receive(self, mode: Mode, request: HttpRequest, target: MessagePath) -> Response:
        patience = Patience(self._wait_of(request))
        address = parse_address(target.entity)
        with request.giving_way(patience.end):
            found = await unless_gone(request, self._broker.receive(address, 1, mode=mode, wait=patience))
        if not found:
            return Response(status_code=204)
        message = found[0].message
        location = None
        if message.token is not None:
            base = f"{request.scope['scheme']}://{request.named_host}" if request.named_host else ""
            location = base + lock_path(target.entity, message.sequence, message.token)
        status = 201 if mode is Mode.PEEK_LOCK else 200
        source = self._path_of(message.source, message.entity)
        size = len(message.head) + len(found[0].body)
        return await self._worker.run(request.key, size, lambda: receiving.response(found[0], status, source, location))

    def _wait_of(self, request: HttpRequest) -> float:
        text = request.query.get("timeout", "")
        if not text:
            return self._limits.longest_wait_seconds
        try:
            seconds = float(text)
        except ValueError:
            seconds = math.nan
        if not seconds >= 0:
            raise BadRequest(f"The parameter 'timeout' has value {clip(text)}. Not a number of seconds.")
        return min(seconds, self._limits.longest_wait_seconds)

    def _path_of(self, source: int | None, held_by: int) -> str | None:
        entity = self._broker.catalogue.entity(source) if source not in (None, held_by) else None
        return entity.path if entity is not None else None

    # Held messages

    async def _settle(self, action: Action, _: HttpRequest, target: MessagePath) -> Response:
        # Only the token identifies the message: the segment before it is an id or a number, and an id may be digits.
        settlement = Settlement(action, token_of(target.token))
        outcomes = await self._broker.settle(parse_address(target.entity), [settlement])
        if outcomes[0] is not Outcome.DONE:
            raise Refused(404, LOCK_LOST)
        return Response(b"", 200)

    async def _renew(self, _: HttpRequest, target: MessagePath) -> Response:
        token = token_of(target.token)
        until = (await self._broker.renew_locks(parse_address(target.entity), [token]))[0]
        if isinstance(until, Outcome):
            raise Refused(404, LOCK_LOST)
        return receiving.renewal_response(token, until)

    # Inspection

    async def _peek(self, request: HttpRequest, target: MessagePath) -> Response:
        query = request.query
        start = number_in(query, "from", 0, 0, LAST_NUMBER)
        count = number_in(query, "count", min(10, self._limits.peeked), 1, self._limits.peeked)
        address = parse_address(target.entity)
        session, most = query.get("session"), self._limits.peeked_bytes
        async with self._renderer.page(request.key):
            found = await self._broker.peek(address, start, count, session, most)
            sources = [self._path_of(each.message.source, each.message.entity) for each in found]
            size = sum(len(each.message.head) + len(each.body) for each in found)
            # Fewer messages than requested may be all there are, or all that fit into the answer.
            catalogue = self._broker.catalogue
            may_be_more = len(found) == count or size + catalogue.largest_message(catalogue.find(address.path)) > most
            last = found[-1].message.sequence + 1 if found and may_be_more else None

            def make() -> Response:
                messages, following = receiving.page(list(zip(found, sources, strict=True)))
                return JSONResponse({"entity": address.path, "messages": messages, "next": following or last})

            return await self._worker.run(request.key, size, make)

    async def _purge(self, request: HttpRequest, target: MessagePath) -> Response:
        before = _time_in(request.query, "before")
        address = parse_address(target.entity)
        return JSONResponse(purge_record(target.entity, await self._broker.purge(address, before)))

    async def _drops(self, request: HttpRequest, target: MessagePath) -> Response:
        query = request.query
        since = _time_in(query, "since")
        limit, after = self._page_of(query)
        path = _plain(parse_address(target.entity))
        drops = await self._broker.duplicates(
            path, message_id=query.get("message-id"), since=since, limit=limit, after=after
        )
        return JSONResponse(drops_page(path, drops, limit))

    async def _forgets(self, request: HttpRequest, target: MessagePath) -> Response:
        limit, after = self._page_of(request.query)
        path = _plain(parse_address(target.entity))
        return JSONResponse(forgets_page(path, await self._broker.forgets(path, limit, after), limit))

    async def _forget(self, request: HttpRequest, target: MessagePath) -> Response:
        query = request.query
        path, identity = _plain(parse_address(target.entity)), query.get("message-id", "")
        session, partition_key = query.get("session-id"), query.get("partition-key")
        forget = await self._broker.forget(path, identity, session=session, partition_key=partition_key)
        # Without a record, the forget is durable, but nobody knows yet whether the id was remembered.
        record = None if forget is None else forget_record(forget)
        return JSONResponse({"entity": path, "messageId": identity, "forget": record}, 202 if forget is None else 200)

    async def _refusals(self, _: HttpRequest, target: MessagePath) -> Response:
        entity = self._find(parse_address(target.entity).path)
        refusals = self._broker.refusals
        return JSONResponse(refusals_page(entity.path, refusals.counts(entity.id), refusals.records(entity.id)))

    async def _switch_on_detection(self, request: HttpRequest, target: MessagePath) -> Response:
        query = request.query
        window = parse_timespan(query["window"], "window") if query.get("window") else None
        key = query.get("detection-key") or None
        after = await self._broker.change(
            lambda catalogue, now: catalogue.switch_on_detection(target.entity, window, now, key)
        )
        entity = after.find(target.entity)
        assert isinstance(entity, Queue | Topic)
        key_shown = {} if entity.detection_key is None else {BY_FIELD["detection_key"].camel: entity.detection_key}
        return JSONResponse(
            {
                "entity": entity.path,
                "requiresDuplicateDetection": entity.requires_duplicate_detection,
                RESOURCE_WINDOW: iso_timespan(entity.duplicate_detection_history_time_window),
                **key_shown,
                "since": iso8601(entity.updated_at),
            }
        )

    async def _snapshot(self, _request: HttpRequest, _target: MessagePath) -> Response:
        await self._broker.snapshots.make()
        return Response(b"", 201)

    async def _quarantine(self, request: HttpRequest, _: MessagePath) -> Response:
        query = request.query
        limit, after = self._page_of(query)
        rows = await self._broker.quarantine.page(query.get("entity") or None, limit, after)
        return JSONResponse(quarantine_page(self._broker.catalogue, rows, limit))

    async def _decide(
        self,
        decision: Callable[[list[int]], Awaitable[list[Outcome]]],
        done: str,
        request: HttpRequest,
        _: MessagePath,
    ) -> Response:
        numbers = numbers_in(request.query, "number", self._limits.page)
        outcomes = await decision(numbers)
        if Outcome.DONE not in outcomes:
            raise Refused(404, f"No such message in quarantine: {clip(', '.join(map(str, numbers)))}.")
        return JSONResponse(decision_record(done, numbers, outcomes))

    async def _reset(self, _: HttpRequest, __: MessagePath) -> Response:
        if self._do_reset is None:
            raise Refused(403, "This broker keeps its data: only one with --ephemeral or --emulator can be reset.")
        await self._do_reset()
        return Response(status_code=204)

    async def _metrics(self, _: HttpRequest, __: MessagePath) -> Response:
        text = await metrics(self._broker, self._health, self._other_metrics())
        return Response(text, media_type=CONTENT_TYPE)

    def _page_of(self, query: dict[str, str]) -> tuple[int, int]:
        limit = number_in(query, "limit", min(100, self._limits.page), 1, self._limits.page)
        return limit, number_in(query, "after", 0, 0, LAST_NUMBER)


def _time_in(query: dict[str, str], name: str) -> int | None:
    """Return the time of a parameter; None if it is missing. Raises `BadRequest`."""
    if not query.get(name):
        return None
    time = parse_time(query[name])
    if time is None:
        raise BadRequest(
            f"The parameter '{name}' has value {clip(query[name])}. Not a time: write it like '2026-01-31T08:30:00Z'."
        )
    return time


def _plain(address: Address) -> str:
    if address.sub_queue is not SubQueue.MAIN:
        raise BadRequest(
            f"Duplicates never become dead letters, so the dead letters of '{address.path}' have no record of drops."
        )
    return address.path


def _size_of(request: HttpRequest, most: int) -> str:
    """Return a text for the size of a body that is longer than `most`: the exact size if it is known."""
    return request.headers.get("content-length", f"more than {most}")
