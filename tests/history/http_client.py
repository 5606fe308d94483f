"""Service Bus over HTTP, one request per attempt: messages, entities, and the operator's pages."""

from __future__ import annotations

import http.client
import json
import re
import time
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import httpx

from oncebus.protocols.portal.links import link
from tests.programs.serve.clients import BATCH, Client
from tests.protocols.atom.admin import VERSION, description, elements

from .entities import DEAD_LETTERS, SINKS, filter_of, uid_of, wire_form
from .history import Refused, Unanswered
from .operations import ABANDON, COMPLETE, RENEW, Message

_METHODS = {COMPLETE: "DELETE", ABANDON: "PUT", RENEW: "POST"}
_SEAL = re.compile(r'name="seal" value="([0-9a-f]{64})"')
_RESUBMITTED = re.compile(r"(\d+) dead letters? resubmitted")
_METRIC = re.compile(r'^oncebus_(\w+)\{entity="([^"]+)"[^}]*?(?:state="(\w+)")?\} ([0-9.e+]+)$', re.MULTILINE)


class HttpClient:
    """A client. Every error is a refusal, except those that leave the outcome unknown."""

    def __init__(self, client: Client, connection_string: str) -> None:
        self._client, self._string = client, connection_string

    def send(self, entity: str, messages: Sequence[Message]) -> None:
        now = time.time()

        forms = [wire_form(SINKS[entity], each.uid, each.id, each.colour) for each in messages]

        def properties(message: Message, name: str) -> dict[str, Any]:
            found = {"MessageId": name}
            if message.session is not None:
                found["SessionId"] = message.session
            if message.due is not None:
                found["ScheduledEnqueueTimeUtc"] = _iso(now + message.due)
            return found

        path = f"/{entity}/messages"
        if len(messages) == 1:
            [(body, name, own)] = forms
            headers = {"BrokerProperties": json.dumps(properties(messages[0], name))}
            self._ask("POST", path, body.encode(), headers | {key: f'"{value}"' for key, value in own.items()})
            return
        items = [
            {"Body": body, "BrokerProperties": properties(each, name), "UserProperties": own}
            for each, (body, name, own) in zip(messages, forms, strict=True)
        ]
        self._ask("POST", path, json.dumps(items).encode(), {"Content-Type": BATCH})

    def receive(self, place: str, seconds: float) -> tuple[dict[str, Any], str] | None:
        """Lock the next message. Return its record for the history, and the path for settling it."""
        status, headers, body = self._ask("POST", f"/{place}/messages/head?timeout={seconds}")
        if status == 204:
            return None
        found = json.loads(headers["brokerproperties"])
        # Over HTTP the count includes this delivery.
        count = found["DeliveryCount"] - 1
        record = {
            "uid": uid_of(body.decode(), found["MessageId"]),
            "id": found["MessageId"],
            "number": found["SequenceNumber"],
            "origin": found.get("EnqueuedSequenceNumber"),
            "count": count,
            "session": found.get("SessionId"),
            # HTTP has whole seconds only, which is too coarse to check a window.
            "second": int(parsedate_to_datetime(found["EnqueuedTimeUtc"]).timestamp()),
        }
        return record, urlsplit(headers["location"]).path

    def settle(self, path: str, action: str) -> None:
        self._ask(_METHODS[action], path)

    def look(self, place: str) -> list[dict[str, Any]]:
        """Return all messages of a place in any state: uid, number, state."""
        found: list[dict[str, Any]] = []
        start: int | None = 0
        while start is not None:
            _, _, body = self._ask("GET", f"/{place}/$messages?from={start}&count=100")
            page = json.loads(body)
            start = page["next"]
            for item in page["messages"]:
                properties = item["BrokerProperties"]
                found.append(
                    {
                        "uid": uid_of(item["Body"], properties["MessageId"]),
                        "number": properties["SequenceNumber"],
                        "state": properties["State"],
                        "session": properties.get("SessionId"),
                    }
                )
        return found

    def drops(self, entity: str) -> list[dict[str, Any]]:
        """Return the complete record of dropped duplicates."""
        found: list[dict[str, Any]] = []
        after: int | None = 0
        while after is not None:
            _, _, body = self._ask("GET", f"/{entity}/$duplicates?limit=1000&after={after}")
            page = json.loads(body)
            found += page["duplicates"]
            after = page["next"]
        return found

    def forget(self, entity: str, name: str) -> int | None:
        """Forget an id. Return the number that the forget took; None if the pipeline has not processed it yet."""
        _, _, body = self._ask("POST", f"/{entity}/$forgets?message-id={name}")
        record = json.loads(body)["forget"]
        return None if record is None else int(record["sequenceNumber"])

    def metrics(self) -> dict[str, dict[str, int]]:
        """Return the counters of each entity. The number of messages in a state is under the name of the state."""
        _, _, body = self._ask("GET", "/metrics")
        found: dict[str, dict[str, int]] = {}
        for name, entity, state, value in _METRIC.findall(body.decode()):
            key = state if name == "messages" else name.removeprefix("messages_").removesuffix("_total")
            found.setdefault(entity, {})[key] = int(float(value))
        return found

    def is_healthy(self) -> bool:
        try:
            return self._client.health() == 200
        except (OSError, http.client.HTTPException):
            return False

    def is_answered(self) -> bool:
        """Return whether the broker answers at all."""
        try:
            return self._client.health() > 0
        except (OSError, http.client.HTTPException):
            return False

    # Entities

    def create(self, queue: str, window: str, **values: object) -> None:
        self._put(queue, {**values, **_detecting(window)})

    def change_window(self, queue: str, window: str, **values: object) -> None:
        self._put(queue, {**values, **_detecting(window)}, {"If-Match": "*"})

    def delete(self, entity: str) -> None:
        self._ask("DELETE", f"/{entity}?{VERSION}")

    def change_rule(self, place: str, colour: str) -> None:
        sql = f'<Filter i:type="SqlFilter"><SqlExpression>{filter_of(colour)}</SqlExpression></Filter>'
        body = description("RuleDescription", f'{sql}<Action i:type="EmptyRuleAction"/><Name>colour</Name>')
        self._ask("PUT", f"/{place}/rules/colour?{VERSION}", body, {"If-Match": "*"})

    def _put(self, queue: str, values: Mapping[str, object], headers: dict[str, str] | None = None) -> None:
        self._ask("PUT", f"/{queue}?{VERSION}", description("QueueDescription", elements(**values)), headers)

    # The portal

    def resubmit(self, place: str, numbers: Sequence[int]) -> int:
        """Resubmit dead letters in the portal, the only interface for it. Return how many there were."""
        try:
            with httpx.Client(base_url=self._client.url, timeout=60) as browser:
                form = browser.get(link("sign-in"))
                answer = browser.post(link("sign-in"), data={"seal": _seal(form), "connection-string": self._string})
                page = browser.get(link("entity/messages", path=place, of="dead-letters"))
                if answer.status_code != 303 or page.status_code != 200:
                    raise Refused(f"no page: {answer.status_code}, {page.status_code}")
                data = {"seal": _seal(page), "path": place, "number": list(map(str, numbers))}
                answer = browser.post(link("entity/resubmit"), data=data)
                if answer.status_code != 303:
                    _judge(answer.status_code, answer.content)
                result = browser.get(answer.headers["location"]).text
        except httpx.HTTPError as error:
            raise Unanswered(repr(error)) from error
        found = _RESUBMITTED.search(result)
        if found is None:
            raise Unanswered("the portal shows no count")
        return int(found[1])

    def _ask(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        try:
            status, found, answer = self._client.exchange(method, path, body, headers)
        except (OSError, http.client.HTTPException) as error:
            raise Unanswered(repr(error)) from error
        _judge(status, answer)
        return status, found, answer


def letters_of(place: str) -> str:
    """Return the HTTP path of the dead letters of a place."""
    return place.removesuffix(DEAD_LETTERS) + "/$DeadLetterQueue"


def _judge(status: int, answer: bytes) -> None:
    if status < 400:
        return
    text = f"{status}: {answer.decode()}"
    # An internal error leaves the outcome unknown. The checker reports it.
    raise Unanswered(text) if status == 500 else Refused(text)


def _seal(page: httpx.Response) -> str:
    found = _SEAL.search(page.text)
    if found is None:
        raise Refused(f"no form: {page.status_code}")
    return found[1]


def _detecting(window: str) -> dict[str, object]:
    return {"RequiresDuplicateDetection": True, "DuplicateDetectionHistoryTimeWindow": window}


def _iso(seconds: float) -> str:
    whole, rest = divmod(round(seconds * 1000), 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{rest:03}Z"
