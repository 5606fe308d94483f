"""Catalogues and their parts, for property tests."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, timedelta
from decimal import Decimal

from hypothesis import strategies as st

from oncebus.amqp.types import Float, Int, Long, UByte
from oncebus.model.access import AuthorizationRule, Right
from oncebus.model.entities import (
    NO_LIMIT,
    Catalogue,
    CorrelationFilter,
    Entity,
    EntityStatus,
    FalseFilter,
    FilterValue,
    Namespace,
    Queue,
    Rule,
    SqlAction,
    SqlFilter,
    Subscription,
    Tier,
    Topic,
    TrueFilter,
    iso_timespan,
)
from oncebus.model.entities.filter_values import Moment, TimeSpan
from oncebus.values.durations import DAY, MINUTE, SECOND

TEXTS = st.text(max_size=8)
TIMES = st.integers(0, 2**52)
SPANS = st.one_of(st.just(NO_LIMIT), st.integers(5 * MINUTE, 100 * DAY))

VALUES: st.SearchStrategy[FilterValue] = st.one_of(
    TEXTS,
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.binary(max_size=8),
    st.datetimes(timezones=st.just(UTC)).map(lambda time: Moment.parse(time.isoformat())),
    st.timedeltas(timedelta(days=-9999), timedelta(days=9999)).map(
        lambda span: TimeSpan.parse(iso_timespan(span // timedelta(microseconds=1)))
    ),
    st.uuids(),
    st.just(Moment.parse("2026-01-01T12:00:00")),
    st.sampled_from([Int(1), Long(1), UByte(1), Float(1.5), Decimal("1.50")]),
    st.sampled_from([Moment.parse("2026-01-01T00:00:00.1234567Z"), TimeSpan.parse("PT0.1234567S")]),
)
PARAMETERS = st.lists(st.tuples(TEXTS, VALUES), max_size=3, unique_by=lambda each: each[0]).map(tuple)

FILTERS = st.one_of(
    st.builds(SqlFilter, TEXTS, PARAMETERS, st.integers(1, 99), st.booleans()),
    st.builds(TrueFilter),
    st.builds(FalseFilter),
    st.builds(CorrelationFilter, label=st.none() | TEXTS, session_id=st.none() | TEXTS, properties=PARAMETERS),
)
RULES = st.builds(Rule, TEXTS, FILTERS, st.none() | st.builds(SqlAction, TEXTS, PARAMETERS), TIMES)

# At least `oncebus.model.access.authorization_rule.LEAST_KEY` characters, because clients may choose these keys.
KEYS = st.text("aZ0+/=!~", min_size=16, max_size=20)
AUTHORIZATION_RULES = st.builds(
    AuthorizationRule,
    st.text("aZ0", min_size=1, max_size=8),
    st.frozensets(st.sampled_from(Right), min_size=1),
    KEYS,
    KEYS,
)

QUEUES = st.builds(
    Queue,
    name=TEXTS,
    lock_duration=st.integers(SECOND, 5 * MINUTE),
    requires_duplicate_detection=st.booleans(),
    requires_session=st.booleans(),
    default_message_time_to_live=SPANS,
    auto_delete_on_idle=SPANS,
    authorization_rules=st.lists(AUTHORIZATION_RULES, max_size=2).map(tuple),
    status=st.sampled_from(EntityStatus),
    forward_to=st.none() | TEXTS,
    user_metadata=st.none() | TEXTS,
    max_message_size_in_kilobytes=st.none() | st.integers(1, 102400),
    created_at=TIMES,
)
TOPICS = st.builds(
    Topic,
    name=TEXTS,
    requires_duplicate_detection=st.booleans(),
    status=st.sampled_from(EntityStatus),
    user_metadata=st.none() | TEXTS,
    updated_at=TIMES,
)
SUBSCRIPTIONS = st.builds(
    Subscription,
    topic=TEXTS,
    name=TEXTS,
    topic_id=st.integers(1, 9),
    status=st.sampled_from(EntityStatus),
    rules=st.lists(RULES, max_size=3).map(tuple),
    created_at=TIMES,
)


@st.composite
def written_catalogues(draw: st.DrawFn) -> Catalogue:
    """Generate any catalogue that the format must be able to store, even one that the limits do not allow."""
    parts: list[Entity] = draw(
        st.lists(st.one_of(QUEUES, TOPICS, SUBSCRIPTIONS), max_size=5, unique_by=lambda entity: entity.path.lower())
    )
    entities = {entity.path.lower(): replace(entity, id=number) for number, entity in enumerate(parts, start=1)}
    namespace = Namespace(draw(TEXTS), draw(st.sampled_from(Tier)))
    return Catalogue(draw(st.integers(0, 10**11)), namespace, len(parts) + 1 + draw(st.integers(0, 5)), entities)
