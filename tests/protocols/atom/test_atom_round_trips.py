"""Descriptions survive being written and read; any other body is rejected, and nothing else happens."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncebus.model.entities import (
    Catalogue,
    CorrelationFilter,
    FalseFilter,
    FilterValue,
    Queue,
    Rule,
    SqlAction,
    SqlFilter,
    Subscription,
    Topic,
    TrueFilter,
)
from oncebus.model.entities.catalogue_json import catalogue_from_json, catalogue_to_json
from oncebus.model.entities.errors import BadRequest
from oncebus.protocols.atom import markup
from oncebus.protocols.atom.descriptions import NAMESPACES, read_description, write_description
from oncebus.protocols.atom.document import read_document
from oncebus.protocols.atom.entries import ATOM, AtomEntry, Site, entry_response, etag_of, read_entry
from oncebus.protocols.atom.rules import read_rule, write_rule
from tests.model.entities.catalogues import QUEUES, SUBSCRIPTIONS, TOPICS
from tests.properties import examples

# Characters that XML can contain.
TEXTS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\ufffe\uffff").filter(
        lambda each: each in "\t\n\r" or each >= " "
    ),
    max_size=12,
)
VALUES: st.SearchStrategy[FilterValue] = st.one_of(
    TEXTS,
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.binary(max_size=8),
    st.datetimes(timezones=st.just(UTC)).map(lambda time: time.replace(fold=0)),
    st.datetimes(),
    st.timedeltas(timedelta(days=-9999), timedelta(days=9999)),
    st.uuids(),
)
PARAMETERS = st.lists(st.tuples(TEXTS, VALUES), max_size=4, unique_by=lambda each: each[0]).map(tuple)
NULLABLE = st.none() | TEXTS
FILTERS = st.one_of(
    st.builds(SqlFilter, TEXTS, PARAMETERS, st.integers(1, 99), st.booleans()),
    st.builds(TrueFilter),
    st.builds(FalseFilter),
    st.builds(
        CorrelationFilter,
        correlation_id=NULLABLE,
        message_id=NULLABLE,
        to=NULLABLE,
        reply_to=NULLABLE,
        label=NULLABLE,
        session_id=NULLABLE,
        reply_to_session_id=NULLABLE,
        content_type=NULLABLE,
        properties=PARAMETERS,
    ),
)
ACTIONS = st.none() | st.builds(SqlAction, TEXTS, PARAMETERS, st.integers(1, 99), st.booleans())
NAMES = st.text("abcdefgh", min_size=1, max_size=5)
SITE = Site("https", "bus.example.org", "2021-05", "oncebus")
SAFE = st.none() | TEXTS
ENTITIES = st.one_of(
    st.builds(lambda each, text, to: replace(each, user_metadata=text, forward_to=to), QUEUES, SAFE, st.none() | NAMES),
    st.builds(lambda each, text: replace(each, user_metadata=text), TOPICS, SAFE),
    st.builds(
        lambda each, text, to: replace(each, user_metadata=text, forward_to=to), SUBSCRIPTIONS, SAFE, st.none() | NAMES
    ),
)


def without_times(entity: Queue | Topic | Subscription) -> Queue | Topic | Subscription:
    return replace(entity, created_at=0, updated_at=0)


@given(ENTITIES)
def test_a_description_is_read_as_it_was_written(entity: Queue | Topic | Subscription) -> None:
    entry = AtomEntry(entity.path, entity.name, entity.created_at, entity.updated_at, write_description(entity))
    body = bytes(entry_response(entry, SITE).body)
    given_again = read_entry(body)
    match entity:
        case Queue():
            blank = Queue(name=entity.name, id=entity.id)
            made: Queue | Topic | Subscription = read_description(given_again).apply_to(blank)
        case Topic():
            made = read_description(given_again).apply_to(Topic(name=entity.name, id=entity.id))
        case _:
            base = Subscription(
                topic=entity.topic, name=entity.name, id=entity.id, topic_id=entity.topic_id, rules=entity.rules
            )
            made = read_description(given_again).apply_to(base)
    assert without_times(made) == without_times(entity)
    assert etag_of(write_description(entity)) != etag_of(write_description(replace(entity, created_at=2**53)))


@given(NAMES, FILTERS, ACTIONS)
def test_a_rule_is_read_as_it_was_written(name: str, chosen: object, action: SqlAction | None) -> None:
    rule = Rule(name, chosen, action, 5)  # type: ignore[arg-type]
    node = read_document(write_rule(rule, attributes=NAMESPACES).encode())
    assert replace(read_rule(node), created_at=5) == rule
    assert read_rule(node, "other").name == "other"


@given(TEXTS, TEXTS)
def test_texts_survive_as_content_and_as_attributes(content: str, attribute: str) -> None:
    node = read_document(markup.tag("a", markup.text(content), {"b": attribute}).encode())
    assert (node.text, node.attributes) == (content, {("", "b"): attribute})


@given(st.text())
def test_any_description_is_written_as_xml(content: str) -> None:
    node = read_document(markup.tag("a", markup.text(content), {"b": content}).encode())
    assert len(node.text) == len(content)


@examples(300)
@given(st.binary() | st.text().map(str.encode))
def test_any_body_is_a_document_or_a_bad_request(body: bytes) -> None:
    try:
        ours = read_document(body)
    except BadRequest as error:
        assert "\n" not in str(error)
    else:
        assert ours.name == ElementTree.fromstring(body).tag.rpartition("}")[2]


@examples(300)
@given(st.data())
def test_a_mutated_description_is_read_or_rejected(data: st.DataObject) -> None:
    whole = f'<entry xmlns="{ATOM}"><content>{write_description(Queue(name="q", user_metadata="x"))}</content></entry>'
    pieces = re.findall(r"<[^>]*>|[^<]+", whole)
    at = data.draw(st.integers(0, len(pieces) - 1))
    piece = data.draw(
        st.sampled_from(["", "<a/>", "<a>", "</a>", "x", "\x00", "<![CDATA[y]]>", "<!-- z -->", pieces[at] * 2])
    )
    pieces[at] = piece
    with contextlib.suppress(BadRequest):
        read_description(read_entry("".join(pieces).encode()))


def test_values_that_other_clients_write_are_understood() -> None:
    def value(kind: str, text: str) -> object:
        content = (
            '<Filter i:type="CorrelationFilter"><Properties><KeyValueOfstringanyType><Key>k</Key>'
            f'<Value i:type="{kind}">{text}</Value></KeyValueOfstringanyType></Properties></Filter>'
        )
        node = read_document(markup.tag("RuleDescription", content, NAMESPACES).encode())
        chosen = read_rule(node).filter
        assert isinstance(chosen, CorrelationFilter)
        return chosen.properties[0][1]

    assert value("l28:dateTime", "2026-11-16T05:44:31.675Z") == datetime(2026, 11, 16, 5, 44, 31, 675000, UTC)
    assert value("d6p1:dateTime", "2026-11-16T05:44:31.1234567+02:00").utcoffset() == timedelta(hours=2)  # type: ignore[attr-defined]
    assert value("d6p1:duration", "P1DT2H") == timedelta(days=1, hours=2)
    assert value("unsignedByte", " 200 ") == 200
    assert value("x:decimal", "1.50") == 1.5
    assert value("double", "-INF") == float("-inf")
    assert value("boolean", "1") is True
    assert value("base64Binary", "AP 8=\n") == b"\x00\xff"
    assert value("string", " as it is ") == " as it is "


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("int", "12"),
        ("long", "12"),
        ("short", "-7"),
        ("unsignedByte", "200"),
        ("unsignedInt", "12"),
        ("float", "1.5"),
        ("double", "1.5"),
        ("decimal", "1.50"),
        ("dateTime", "2026-11-16T05:44:51.1650498Z"),
        ("dateTime", "2026-11-16T05:44:51.1650498+02:00"),
        ("duration", "P1DT2H0.1234567S"),
    ],
)
def test_values_keep_their_type_and_their_text(kind: str, text: str) -> None:
    content = (
        '<Filter i:type="CorrelationFilter"><Properties><KeyValueOfstringanyType><Key>k</Key>'
        f'<Value i:type="d6p1:{kind}">{text}</Value></KeyValueOfstringanyType></Properties></Filter>'
    )
    rule = read_rule(read_document(markup.tag("RuleDescription", content, NAMESPACES).encode()))
    subscription = Subscription(topic="t", name="s")
    catalogue = Catalogue().create(Topic(name="t"), 1).create(subscription, 2, [replace(rule, name="r")])
    shown = write_rule(catalogue_from_json(catalogue_to_json(catalogue)).rule("t", "s", "r"))
    assert f'i:type="d6p1:{kind}"' in shown
    assert f">{text}</Value>" in shown


@pytest.mark.parametrize(
    ("kind", "text"), [("unsignedByte", "256"), ("int", "2147483648"), ("decimal", "1E+999999999")]
)
def test_values_that_do_not_fit_their_type_are_refused(kind: str, text: str) -> None:
    content = (
        '<Filter i:type="CorrelationFilter"><Properties><KeyValueOfstringanyType><Key>k</Key>'
        f'<Value i:type="d6p1:{kind}">{text}</Value></KeyValueOfstringanyType></Properties></Filter>'
    )
    with pytest.raises(BadRequest, match=f"must have the type {kind}"):
        read_rule(read_document(markup.tag("RuleDescription", content, NAMESPACES).encode()))
