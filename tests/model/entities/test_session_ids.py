from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncebus.model.entities import partition_of
from oncebus.model.entities.names import session_key


@pytest.mark.parametrize(
    ("one", "other"),
    [("sessionId", "SESSIONid"), ("ödeme", "ÖDEME"), ("σς", "ΣΣ"), ("ǆ", "Ǆ"), ("ᾳ", "ᾼ"), ("", ""), ("𐐨", "𐐀")],
)
def test_ids_that_differ_only_in_letter_case_are_the_same_session(one: str, other: str) -> None:
    assert session_key(one) == session_key(other)
    places = {partition_of(each, None, None, detects=True, turn=0) for each in (one, other)}
    assert len(places) == 1


# The upper case of the dotless i and of the long s is ASCII; .NET keeps those letters as they are.
@pytest.mark.parametrize(("one", "other"), [("ß", "SS"), ("ŉ", "ʼN"), ("ı", "I"), ("ſ", "S"), ("é", "e"), ("a ", "a")])
def test_other_differences_make_other_sessions(one: str, other: str) -> None:
    assert session_key(one) != session_key(other)


@given(st.text())
def test_the_form_has_the_same_length_and_is_its_own_form(session: str) -> None:
    key = session_key(session)
    assert len(key) == len(session)
    assert session_key(key) == key
