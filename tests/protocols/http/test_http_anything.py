"""Any request, however it is written, gets a response that names the error, and never an internal error."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from oncebus.amqp.types import Timestamp
from oncebus.protocols.http.paths import Shape, lock_path, target_of
from oncebus.protocols.http.properties import text_for, value_of
from oncebus.protocols.http.times import iso8601, parse_time, rfc1123
from oncebus.values.durations import LAST_MOMENT
from tests.properties import examples
from tests.protocols.http.http_front import BATCH, Front, Shared, in_path

WORDS = [
    "orders",
    "a/b",
    "news",
    "messages",
    "head",
    "$duplicates",
    "$forgets",
    "$DeadLetterQueue",
    "Subscriptions",
    "all",
    "metrics",
    "$quarantine",
]
GUID = "00000000-0000-0000-0000-000000000001"
FIELDS = ["MessageId", "SessionId", "PartitionKey", "Label", "To", "TimeToLive", "TimeToLiveTimeSpan", "ContentType"]

texts = st.text(max_size=140) | st.text(st.characters(), max_size=10)
segments = st.sampled_from([*WORDS, GUID, "1"]) | texts.map(
    lambda text: in_path(text.encode("utf-8", "replace").decode())
)
paths = st.lists(segments, max_size=5).map(lambda parts: "/" + "/".join(parts)) | st.binary(max_size=30).map(
    lambda raw: "/" + raw.decode("latin-1").encode("ascii", "replace").decode()
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | texts
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3))
given_properties = st.dictionaries(st.sampled_from([*FIELDS, "ScheduledEnqueueTimeUtc"]), scalars, max_size=4)
items = st.fixed_dictionaries(
    {},
    optional={"Body": texts | values, "BrokerProperties": given_properties | values, "UserProperties": values},
)
bodies = st.binary(max_size=50) | st.lists(items | values, max_size=4).map(lambda each: json.dumps(each).encode())
header_values = st.binary(max_size=40) | given_properties.map(lambda each: json.dumps(each).encode())
header_names = st.sampled_from([b"BrokerProperties", b"Content-Type", b"Expect", b"Content-Length", b"a", b"B-c"])
headers = st.lists(st.tuples(header_names | st.binary(min_size=1, max_size=8), header_values), max_size=4)
batch_header = st.sampled_from([[], [(b"content-type", BATCH.encode())]])
queries = st.binary(max_size=20) | st.sampled_from(
    [b"limit=5&after=1", b"since=x", b"message-id=%e2%82%ac", b"entity=a"]
)


@examples(150, suppress_health_check=list(HealthCheck))
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD", "TRACE", "x"]),
    path=paths,
    query=queries,
    extra=headers,
    kind=batch_header,
    body=bodies,
)
def test_random_requests_never_fail(
    shared: Shared,
    method: str,
    path: str,
    query: bytes,
    extra: list[tuple[bytes, bytes]],
    kind: list[tuple[bytes, bytes]],
    body: bytes,
) -> None:
    async def play(front: Front) -> None:
        short = query if b"timeout" in query else b"timeout=0&" + query
        answer = await front.ask(method, path, body, kind + extra, query=short)
        assert 200 <= answer.status < 500
        assert answer.status != 401 or b"InvalidAudience" in answer.body

    shared(play)


@examples(80, suppress_health_check=list(HealthCheck))
@given(extra=headers, kind=batch_header, body=bodies, properties=given_properties)
def test_what_is_accepted_can_be_received(
    shared: Shared,
    extra: list[tuple[bytes, bytes]],
    kind: list[tuple[bytes, bytes]],
    body: bytes,
    properties: dict[str, object],
) -> None:
    async def play(front: Front) -> None:
        sent = [*kind, *extra, (b"BrokerProperties", json.dumps(properties).encode())]
        answer = await front.ask("POST", "/a/b/messages", body, sent)
        assert answer.status in (201, 400, 413)
        counts = await front.broker.counts("a/b")
        for _ in range(counts.active):
            # A message with a time to live of a microsecond may have expired.
            assert (await front.take("a/b", wait=0)).status in (200, 204)

    shared(play)


@given(st.lists(st.text(min_size=1).filter(lambda text: text != "/"), min_size=1, max_size=3), st.text())
def test_paths_are_read_as_they_were_written(entity: list[str], identity: str) -> None:
    written = "/".join(in_path(part) for part in entity)
    target = target_of(f"/{written}/messages/{in_path(identity)}/{GUID}".encode())
    assert target == (Shape.LOCK, "/".join(entity), identity, GUID)
    again = target_of(lock_path(target.entity, 5, b"\x00" * 15 + b"\x01").encode())
    assert again == (Shape.LOCK, target.entity, "5", GUID)


@given(
    st.text()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-60_000_000_000_000, 250_000_000_000_000).map(Timestamp)
)
def test_properties_survive_as_headers(value: object) -> None:
    text = text_for(value)
    assert text is not None
    assert text.isascii()
    assert text.isprintable()
    found = value_of("x", text)
    assert (found, type(found)) == (value, type(value))


@given(st.integers(LAST_MOMENT, 2**63 - 1))
def test_a_time_beyond_the_last_date_becomes_that_date(time: int) -> None:
    assert iso8601(time) == "9999-12-31T23:59:59.999999Z"
    assert rfc1123(time) == "Fri, 31 Dec 9999 23:59:59 GMT"


@given(st.integers(0, 250_000_000_000_000_000))
def test_times_survive(time: int) -> None:
    assert parse_time(iso8601(time)) == time
    assert parse_time(rfc1123(time)) == time // 1_000_000 * 1_000_000
