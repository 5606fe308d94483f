from __future__ import annotations

import base64
import hashlib
import hmac
import importlib
import time
from datetime import timedelta
from unittest import mock
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncebus.model.access import AccessRefused, AuthorizationRule, Operation, Reason, Right, fresh_key, make_token
from oncebus.model.access import tokens as tokens_module
from oncebus.model.access.authorization import verify
from oncebus.model.access.tokens import LATEST, LONGEST_TOKEN, read_token
from oncebus.values.durations import DAY, SECOND
from tests.model.access.actors import HOST, LATER, NOW, ROOT, SENDER, ask, token

KEYS = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters=";"), min_size=1, max_size=60)
PATHS = st.lists(st.from_regex(r"[A-Za-z0-9_-]{1,8}", fullmatch=True), max_size=3).map("/".join)


def refusal(text: str | None, **arguments: object) -> AccessRefused:
    with pytest.raises(AccessRefused) as caught:
        ask(text, **arguments)  # type: ignore[arg-type]
    return caught.value


def signed(encoded: str, expiry: str, key: str = ROOT.primary_key) -> str:
    """Return the signature, computed independently from the service's documentation."""
    digest = hmac.new(key.encode(), f"{encoded}\n{expiry}".encode(), hashlib.sha256).digest()
    return quote(base64.b64encode(digest), safe="")


def test_a_token_is_made_as_the_service_describes_it() -> None:
    encoded = "sb%3A%2F%2Fbus.example.org%2Forders"
    assert token() == (
        f"SharedAccessSignature sr={encoded}&sig={signed(encoded, '1800003600')}"
        "&se=1800003600&skn=RootManageSharedAccessKey"
    )


@given(path=PATHS, primary=KEYS, secondary=KEYS, seconds=st.integers(1, 10**9), uses_primary=st.booleans())
def test_a_token_signed_with_either_key_is_accepted(
    path: str, primary: str, secondary: str, seconds: int, uses_primary: bool
) -> None:
    rule = AuthorizationRule("rule", frozenset({Right.SEND}), primary, secondary)
    expires = NOW + seconds * SECOND
    text = make_token(f"sb://{HOST}/{path}", "rule", primary if uses_primary else secondary, expires)
    grant = verify(text, now=NOW, namespace_rules=[rule], rules_of=lambda _: [], host=HOST)
    assert (grant.rule, grant.rights, grant.expires) == ("rule", frozenset({Right.SEND}), expires)


@given(data=st.data(), key=KEYS)
def test_a_token_with_any_character_changed_means_the_same_or_is_refused(data: st.DataObject, key: str) -> None:
    rule = AuthorizationRule("rule", frozenset({Right.SEND}), key, fresh_key())
    text = make_token(f"sb://{HOST}/orders", "rule", key, LATER)
    place = data.draw(st.integers(0, len(text) - 1))
    character = data.draw(st.characters(min_codepoint=32, max_codepoint=126).filter(lambda c: c != text[place]))
    changed = data.draw(
        st.sampled_from(
            [
                text[:place] + character + text[place + 1 :],
                text[:place] + text[place + 1 :],
                text[:place] + character + text[place:],
            ]
        )
    )
    try:
        verify(changed, now=NOW, namespace_rules=[rule], rules_of=lambda _: [], host=HOST)
    except AccessRefused:
        return
    # Only the URL-encoding of the signature, the letter case of the scheme and outer spaces may vary.
    assert read_token(changed) == read_token(text)


@given(st.one_of(st.text(), st.binary().map(repr), st.from_regex(r"SharedAccessSignature (s[rike]n?g?=.*&?){0,5}")))
def test_garbage_is_refused_and_raises_nothing_else(text: str) -> None:
    assert refusal(text).reason in (Reason.MISSING, Reason.MALFORMED, Reason.SIGNATURE)


GOOD_SR, GOOD_SE = "sb%3A%2F%2Fbus.example.org%2Forders", "1800003600"


@pytest.mark.parametrize(
    "fields",
    [
        "",
        "sr=x",
        f"sr={GOOD_SR}&sig=x&se={GOOD_SE}",
        f"sr={GOOD_SR}&sig=x&se={GOOD_SE}&skn=a&skn=b",
        f"sr={GOOD_SR}&sr={GOOD_SR}&sig=x&se={GOOD_SE}&skn=a",
        f"sr={GOOD_SR}&sig=x&se={GOOD_SE}&skn=a&more=1",
        f"sr={GOOD_SR}&sig=x&se={GOOD_SE}&skn=a&",
        f"sr={GOOD_SR}&sig=x&se=&skn=a",
        f"sr={GOOD_SR}&sig=x&se=-1&skn=a",
        f"sr={GOOD_SR}&sig=x&se=1.5&skn=a",
        f"sr={GOOD_SR}&sig=x&se=0x10&skn=a",
        f"sr={GOOD_SR}&sig=x&se=٣&skn=a",
        f"sr={GOOD_SR}&sig=x&se={'9' * 20}&skn=a",
        f"sr=&sig=x&se={GOOD_SE}&skn=a",
        f"sr=sb%3A%2F%2Fhost%2Fa%2F..%2Fb&sig=x&se={GOOD_SE}&skn=a",
        f"sr=sb%3A%2F%2Fhost%2F%FF&sig=x&se={GOOD_SE}&skn=a",
        f"sr={GOOD_SR}&sig=x&se={GOOD_SE}&skn=%FF",
        f"sr={GOOD_SR}&sig=x&se={GOOD_SE}&skn={'a' * LONGEST_TOKEN}",
    ],
)
def test_a_malformed_token_is_refused_with_the_text_of_the_service(fields: str) -> None:
    error = refusal(f"SharedAccessSignature {fields}")
    assert error.reason is Reason.MALFORMED
    assert str(error).startswith("MalformedToken: The credentials contained in the authorization header are not")


def test_another_kind_of_token_is_malformed_and_none_is_missing() -> None:
    assert refusal("Bearer abc").reason is Reason.MALFORMED
    for nothing in (None, ""):
        error = refusal(nothing)
        assert (error.reason, str(error)) == (
            Reason.MISSING,
            "MissingToken: The authorization header was not found.",
        )


@pytest.mark.parametrize(
    "wrong",
    [
        make_token(f"sb://{HOST}/orders", "RootManageSharedAccessKey", "another key", LATER),
        make_token(f"sb://{HOST}/orders", "unknown", ROOT.primary_key, LATER),
        make_token(f"sb://{HOST}/orders", "sender", ROOT.primary_key, LATER),
        make_token(f"sb://{HOST}/orders", "rootmanagesharedaccesskey", ROOT.primary_key, LATER),
        make_token("sb://elsewhere/orders", "unknown", "another key", NOW - DAY),
        token().replace("se=1800003600", "se=1900003600"),
        token().replace("se=1800003600", "se=01800003600"),
        token().replace("%2Forders", "%2Fothers"),
        token().replace("%2F", "%2f"),
        token()[: token().index("sig=") + 4] + token()[token().index("&se=") :],
    ],
)
def test_a_wrong_signature_and_an_unknown_rule_cannot_be_told_apart(wrong: str) -> None:
    error = refusal(wrong)
    assert (error.reason, error.status) == (Reason.SIGNATURE, 401)
    assert str(error) == "InvalidSignature: The token has an invalid signature."


@pytest.mark.parametrize("rule", ["RootManageSharedAccessKey", "unknown", "sender"])
def test_an_unknown_rule_costs_as_many_signatures_and_comparisons_as_a_known_one(rule: str) -> None:
    text = make_token(f"sb://{HOST}/orders", rule, "another key", LATER)
    with (
        mock.patch.object(tokens_module, "_sign", wraps=tokens_module._sign) as sign,
        mock.patch.object(hmac, "compare_digest", wraps=hmac.compare_digest) as compare,
    ):
        refusal(text)
    assert (sign.call_count, compare.call_count) == (2, 2)


def test_a_good_first_key_costs_as_much_as_a_good_second_one() -> None:
    for key in (ROOT.primary_key, ROOT.secondary_key):
        text = make_token(f"sb://{HOST}/orders", ROOT.name, key, LATER)
        with mock.patch.object(tokens_module, "_sign", wraps=tokens_module._sign) as sign:
            ask(text)
        assert sign.call_count == 2


def test_the_dummy_key_opens_nothing() -> None:
    assert (
        refusal(make_token(f"sb://{HOST}/orders", "unknown", tokens_module._DUMMY_KEY, LATER)).reason
        is Reason.SIGNATURE
    )


def test_a_token_expires_at_the_second_it_names() -> None:
    text = token(expires=LATER)
    assert ask(text, now=LATER - 1).expires == LATER
    with pytest.raises(AccessRefused, match="ExpiredToken"):
        verify(text, now=LATER, namespace_rules=[ROOT], rules_of=lambda _: [])
    error = refusal(text, now=LATER)
    assert error.reason is Reason.EXPIRED
    assert str(error) == "ExpiredToken: The token is expired. Expiration time: '2027-01-15 09:00:00Z'."


def test_a_token_without_end_expires_at_the_end_of_the_year_9999() -> None:
    text = make_token(f"sb://{HOST}", ROOT.name, ROOT.primary_key, (10**19 - 1) * SECOND)
    assert ask(text).expires == LATEST
    assert "9999-12-31" in str(refusal(text, now=LATEST + 1))


@pytest.mark.parametrize("host", ["bus.example.org", "BUS.example.org:5671"])
def test_the_host_is_compared_without_case_and_port(host: str) -> None:
    assert ask(token(), host=host).scope.host == HOST


def test_a_token_for_another_host_is_refused_unless_any_host_is_allowed() -> None:
    text = token("sb://elsewhere.example.org/orders")
    error = refusal(text)
    assert error.reason is Reason.AUDIENCE
    assert str(error) == "InvalidAudience: The authorization header contains a token with a wrong audience."
    assert refusal(token(), host="a b").reason is Reason.AUDIENCE
    assert ask(text, host=None).rule == ROOT.name


@pytest.mark.parametrize(
    "encoded",
    [
        quote(f"sb://{HOST}/orders", safe=""),
        quote_plus(f"sb://{HOST}/orders"),
        quote(f"sb://{HOST}/orders", safe="").lower(),
        quote(f"sb://{HOST}/orders", safe="/"),
        f"sb://{HOST}/orders",
    ],
)
def test_a_client_may_url_encode_as_it_likes_if_it_signs_what_it_sends(encoded: str) -> None:
    text = f"sharedaccesssignature  skn={ROOT.name}&se=1800003600&sr={encoded}&sig={signed(encoded, '1800003600')} "
    assert ask(text).scope.path == ("orders",)


def test_a_signature_with_an_unencoded_plus_is_accepted() -> None:
    for seconds in range(1000):
        text = make_token(f"sb://{HOST}", ROOT.name, ROOT.primary_key, LATER + seconds * SECOND)
        if "%2B" in text:
            assert ask(text.replace("%2B", "+").replace("%3D", "="))
            return
    pytest.fail("no signature with a plus")


def test_the_address_is_decoded_once() -> None:
    assert refusal(token(f"sb://{HOST}/%6Frders")).reason is Reason.AUDIENCE


def test_no_repr_or_error_contains_a_secret() -> None:
    text = token()
    signature = text.split("sig=")[1].split("&")[0]
    for shown in (repr(read_token(text)), repr(ask(text)), repr(ROOT), str(ROOT), f"{SENDER}"):
        for secret in (signature, signature[:-3], ROOT.primary_key, ROOT.secondary_key, SENDER.primary_key):
            assert secret not in shown
    for wrong in (text[:-1], text.replace("sig=", "sig=A"), f"{text}&x=1"):
        assert signature[:-3] not in repr(refusal(wrong))


def test_tokens_of_the_official_python_client_are_accepted() -> None:
    handler = importlib.import_module("azure.servicebus._base_handler")
    key, soon = fresh_key(), int(time.time()) + 3000
    rule = AuthorizationRule("my.rule-1_x", frozenset({Right.SEND}), fresh_key(), key)
    for address in (f"sb://{HOST}/Orders", f"https://{HOST}", f"sb://{HOST}:5672/topic/Subscriptions/s"):
        theirs = handler.ServiceBusSharedKeyCredential(rule.name, key).get_token(address)
        ours = make_token(address, rule.name, key, theirs.expires_on * SECOND)
        assert set(theirs.token.removeprefix("SharedAccessSignature ").split("&")) == set(
            ours.removeprefix("SharedAccessSignature ").split("&")
        )
        grant = verify(theirs.token, now=soon * SECOND, namespace_rules=[rule], rules_of=lambda _: [], host=HOST)
        assert grant.expires == theirs.expires_on * SECOND
    theirs = handler._generate_sas_token(f"sb://{HOST}/Orders", rule.name, "wrong", timedelta(hours=1))
    with pytest.raises(AccessRefused, match="InvalidSignature"):
        verify(theirs.token, now=soon * SECOND, namespace_rules=[rule], rules_of=lambda _: [])


def test_a_token_is_verified_before_the_operation_is_checked() -> None:
    assert refusal(make_token(f"sb://{HOST}", "sender", "wrong", LATER), operation=Operation.DEPLOY).reason is (
        Reason.SIGNATURE
    )
