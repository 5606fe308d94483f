"""Requests of every front, and mutations that keep most of their form.

These protocols have no OpenAPI description to generate requests from, so mutation starts from a valid request of each
kind. A mutated request differs in a few places, and reaches the code that parses its path, headers, JSON or XML.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from random import Random

BATCH = "application/vnd.microsoft.servicebus.json"
GUID = "00000000-0000-0000-0000-000000000001"
_ATOM = "?api-version=2021-05"
_ARM = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ServiceBus/namespaces/oncebus"
_ARM_VERSION = "?api-version=2024-01-01"
_DEPLOYMENT = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Resources/deployments/d"


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


def _entry(kind: str, inside: str) -> bytes:
    text = (
        '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
        f'<{kind} xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect" '
        f'xmlns:i="http://www.w3.org/2001/XMLSchema-instance">{inside}</{kind}></content></entry>'
    )
    return text.encode()


_PROPERTIES = json.dumps(
    {"MessageId": "m", "SessionId": "s", "PartitionKey": "s", "TimeToLive": 60, "Label": "l", "CorrelationId": "c"}
)
_BATCH_BODY = json.dumps(
    [
        {"Body": "one", "BrokerProperties": {"MessageId": "1", "TimeToLiveTimeSpan": "00:01:00"}},
        {"Body": "AAAA", "IsBodyBase64": True, "UserProperties": {"a": 1, "b": "x", "c": True, "d": None}},
    ]
).encode()
_RULE = (
    "<Name>r</Name><Filter i:type=\"SqlFilter\"><SqlExpression>a LIKE 'b%' AND sys.Label = 'x' OR c IN (1, 2)"
    '</SqlExpression></Filter><Action i:type="SqlRuleAction"><SqlExpression>SET a = 1</SqlExpression></Action>'
)
_TEMPLATE = {
    "properties": {
        "mode": "Incremental",
        "parameters": {"name": {"value": "made"}},
        "template": {
            "$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
            "contentVersion": "1.0.0.0",
            "parameters": {"name": {"type": "string", "defaultValue": "x"}},
            "variables": {"both": "[concat(parameters('name'), '-', uniqueString('a', format('{0:N2}', 3)))]"},
            "resources": [
                {
                    "type": "Microsoft.ServiceBus/namespaces/queues",
                    "apiVersion": "2024-01-01",
                    "name": "[format('{0}/{1}', 'oncebus', variables('both'))]",
                    "properties": {"lockDuration": "PT1M", "requiresSession": False},
                }
            ],
        },
    }
}

SEEDS = (
    Request("POST", "/orders/messages", (("BrokerProperties", _PROPERTIES), ("colour", '"red"'), ("n", "1.5")), b"hi"),
    Request("POST", "/orders/messages", (("Content-Type", BATCH),), _BATCH_BODY),
    Request("POST", "/news/messages", (("Content-Type", "a/b"), ("when", '"Tue, 15 Nov 1994 08:12:31 GMT"')), b"x"),
    Request("POST", "/orders/messages/head?timeout=0"),
    Request("DELETE", "/news/Subscriptions/all/messages/head?timeout=0.01"),
    Request("DELETE", f"/orders/messages/1/{GUID}"),
    Request("PUT", f"/orders/$DeadLetterQueue/messages/m/{GUID}"),
    Request("POST", f"/orders/messages/1/{GUID}"),
    Request("GET", "/orders/$messages?from=1&count=5&session=s"),
    Request("GET", "/orders/$duplicates?message-id=a&since=2026-01-31T08:30:00Z&limit=5&after=1"),
    Request("DELETE", "/orders/$messages?before=2026-01-31T08:30:00Z"),
    Request("POST", "/orders/$forgets?message-id=a&session-id=b&partition-key=c"),
    Request("GET", "/orders/$refusals"),
    Request("POST", "/made/$detection?window=PT1H"),
    Request("GET", "/$quarantine?entity=orders&limit=5&after=0"),
    Request("DELETE", "/$quarantine?number=7,8,12"),
    Request("GET", "/metrics"),
    Request("GET", "/health"),
    Request("GET", f"/$Resources/queues{_ATOM}&$skip=0&$top=100"),
    Request("GET", f"/orders{_ATOM}&enrich=true"),
    Request("PUT", f"/made{_ATOM}", (("Content-Type", "application/atom+xml"),), _entry(
        "QueueDescription", "<LockDuration>PT1M</LockDuration><MaxSizeInMegabytes>1024</MaxSizeInMegabytes>"
        "<RequiresDuplicateDetection>true</RequiresDuplicateDetection>"
    )),
    Request("PUT", f"/news/subscriptions/made{_ATOM}", (), _entry(
        "SubscriptionDescription", "<DefaultMessageTimeToLive>P1D</DefaultMessageTimeToLive>"
    )),
    Request("PUT", f"/news/subscriptions/all/rules/r{_ATOM}", (), _entry("RuleDescription", _RULE)),
    Request("DELETE", f"/made{_ATOM}"),
    Request("GET", f"{_ARM}/queues/orders{_ARM_VERSION}"),
    Request("PUT", f"{_ARM}/queues/made{_ARM_VERSION}", (("Content-Type", "application/json"),), json.dumps(
        {"properties": {"lockDuration": "PT1M", "maxSizeInMegabytes": 1024, "status": "Active"}}
    ).encode()),
    Request("PUT", f"{_ARM}/topics/news/subscriptions/all/rules/r{_ARM_VERSION}", (), json.dumps(
        {"properties": {"filterType": "SqlFilter", "sqlFilter": {"sqlExpression": "a > 1 AND NOT b IS NULL"}}}
    ).encode()),
    Request("POST", f"{_ARM}/AuthorizationRules/x/regenerateKeys{_ARM_VERSION}", (), b'{"keyType": "PrimaryKey"}'),
    Request("PUT", f"{_DEPLOYMENT}?api-version=2021-04-01", (), json.dumps(_TEMPLATE).encode()),
    Request("POST", f"{_DEPLOYMENT}/validate?api-version=2021-04-01", (), json.dumps(_TEMPLATE).encode()),
    Request("GET", "/$portal/"),
    Request("POST", "/$portal/sign-in", (("Content-Type", "application/x-www-form-urlencoded"),), b"key=x&name=y"),
)  # fmt: skip

_METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "get", "PRI")
_INTERESTING = (
    b"", b"0", b"-1", b"1e999", b"NaN", b"9223372036854775808", b"null", b"true", b"[]", b"{}", b'"', b"'", b"\\",
    b"\0", b"%", b"%00", b"%2f", b"%ff", b"..", b"/", b"//", b"?", b"&", b"=", b";", b",", b"\r\n", b"\r\n\r\n",
    b"\xff\xfe", "\u20ac\ud7ff\U0001f600".encode(), b"\xed\xa0\x80",
    b"[" * 300, b"(" * 300, b"{\"a\":" * 100, b"<a>" * 200, b"&#0;",
    b"<!DOCTYPE a [<!ENTITY b \"c\">]>", b"]]>", b"P1Y", b"PT0.0000001S", b"10675199.02:48:05.4775807", b"x" * 5000,
    b"[concat(", b"[copyIndex()]", b"')]", b"LIKE '%' ESCAPE '\\'", b"sys.", b"newid()", b"$DeadLetterQueue", b"\x85",
)  # fmt: skip
_HEADERS = ("BrokerProperties", "Content-Type", "Expect", "If-Match", "Content-Encoding", "Host", "x", "Connection",
            "ServiceBusSupplementaryAuthorization", "Cookie", "Origin", "Range", "Upgrade")  # fmt: skip


def spoiled(random: Random) -> bytes:
    """Return the bytes of a random request with some mutations. `TOKEN` marks the place of the token."""
    request = random.choice(SEEDS)
    for _ in range(random.choice((0, 1, 1, 1, 2, 3, 6))):
        request = _changed(request, random)
    data = written(request, random)
    if random.random() < 0.2:
        # These mutations destroy the form too.
        for _ in range(random.choice((1, 1, 2, 4))):
            data = mutated(data, random)
    return data


def written(request: Request, random: Random) -> bytes:
    headers = [("Host", "localhost"), *request.headers]
    if random.random() < 0.97:
        headers.append(("Authorization", TOKEN))
    body = request.body
    if random.random() < 0.1:
        headers.append(("Transfer-Encoding", "chunked"))
        middle = random.randrange(len(body) + 1)
        body = (
            b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:middle], body[middle:], b"") if part)
            + b"0\r\n\r\n"
        )
    elif body or random.random() < 0.3:
        length = len(body) if random.random() < 0.97 else random.choice((0, len(body) + 1, 1 << 31, 1 << 64))
        headers.append(("Content-Length", str(length)))
    lines = [f"{request.method} {request.target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + body


TOKEN = "TOKEN"


def _changed(request: Request, random: Random) -> Request:
    kind = random.random()
    if kind < 0.35 and request.body:
        return replace(request, body=mutated(request.body, random))
    if kind < 0.65:
        path = mutated(request.target.encode("latin-1", "replace"), random).decode("latin-1")
        return replace(request, target="/" + path.lstrip("/").replace(" ", "%20"))
    if kind < 0.9 and request.headers:
        headers = list(request.headers)
        at = random.randrange(len(headers))
        name, value = headers[at]
        headers[at] = (name, mutated(value.encode("latin-1", "replace"), random).decode("latin-1"))
        return replace(request, headers=tuple(headers))
    if kind < 0.95:
        added = (random.choice(_HEADERS), random.choice(_INTERESTING).decode("latin-1"))
        return replace(request, headers=(*request.headers, added))
    return replace(request, method=random.choice(_METHODS))


def mutated(data: bytes, random: Random) -> bytes:
    start = random.randrange(len(data) + 1)
    end = min(len(data), start + random.choice((1, 1, 2, 4, 8, 64)))
    match random.randrange(6):
        case 0:
            return data[:start] + random.choice(_INTERESTING) + data[end:]
        case 1:
            return data[:start] + random.choice(_INTERESTING) + data[start:]
        case 2:
            return data[:start] + data[end:]
        case 3:
            return data[:end] + data[start:]
        case 4 if start < len(data):
            return data[:start] + bytes([data[start] ^ 1 << random.randrange(8)]) + data[start + 1 :]
        case _:
            return data[:start] + random.randbytes(end - start) + data[end:]
