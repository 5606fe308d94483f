from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncebus.model.access.scopes import LONGEST_PATH, MOST_SEGMENTS, BadScope, Scope, path_of, same_host, scope_of

SEGMENTS = st.lists(
    st.sampled_from(["q", "Q", "q1", "q10", "Subscriptions", "$DeadLetterQueue", "a.b", "ä"]), max_size=4
)


@pytest.mark.parametrize(
    "address",
    [
        "sb://host/topic",
        "sb://host/topic/",
        "sb://HOST/Topic",
        "SB://host/topic",
        "sb://host:5671/topic",
        "sb://host:/topic",
        "amqp://host/topic",
        "amqps://host:5671/topic/",
        "http://host:80/topic",
        "urn+x.y-1://host/topic",
        "https://host/topic?api-version=2021-05&x=/y",
        "https://host/topic#part",
        "host/topic",
        "host:5300/topic/",
    ],
)
def test_the_ways_to_write_an_address_name_the_same_scope(address: str) -> None:
    assert scope_of(address) == Scope("host", ("topic",))


@pytest.mark.parametrize(
    "address", ["sb://host", "sb://host/", "sb://host:5671", "https://host?a=b", "host", "host:1/"]
)
def test_without_a_path_the_scope_is_the_namespace(address: str) -> None:
    assert scope_of(address) == Scope("host", ())


@pytest.mark.parametrize(
    "address",
    [
        "",
        "/",
        "/queue",
        "sb:///queue",
        "1ftp://host/queue",
        "://host/queue",
        "sb://user@host/queue",
        "sb://user:word@host/queue",
        "sb://host:port/queue",
        "sb://host:123456/queue",
        "sb://ho st/queue",
        "sb://host\\queue",
        "sb://host//",
        "sb://host//queue",
        "sb://host/a//b",
        "sb://host/queue//",
        "sb://host/..",
        "sb://host/a/../b",
        "sb://host/./a",
        "sb://host/a\nb",
        "sb://host/a\0b",
        "sb://[::1/queue",
        "sb://host/" + "a" * (LONGEST_PATH + 1),
        "sb://host/" + "/".join("a" * (MOST_SEGMENTS + 1)),
    ],
)
def test_a_text_that_is_not_an_address_is_refused(address: str) -> None:
    with pytest.raises(BadScope):
        scope_of(address)


@pytest.mark.parametrize(
    ("scope", "path", "covered"),
    [
        ("queue1", "queue1", True),
        ("queue1", "QUEUE1", True),
        ("queue1", "queue10", False),
        ("queue10", "queue1", False),
        ("queue1", "queue1/$DeadLetterQueue", True),
        ("queue1", "/queue1/", True),
        ("topic", "topic/Subscriptions/s", True),
        ("topic/subscriptions/s", "Topic/Subscriptions/S/$management", True),
        ("topic/subscriptions/s", "topic", False),
        ("topic/subscriptions/s", "topic/subscriptions/s2", False),
        ("region", "region/north", True),
        ("region/n", "region/north", False),
        ("", "anything/at/all", True),
        ("", "", True),
        ("queue1", "", False),
        # Only ASCII letters are folded: the Kelvin sign is not a k, and a sharp s is not ss.
        ("k", "\u212a", False),
        ("strasse", "straße", False),
        # The address is decoded once, so what is still encoded then is compared literally.
        ("a%2Fb", "a/b", False),
    ],
)
def test_a_scope_covers_its_path_and_everything_below(scope: str, path: str, covered: bool) -> None:
    assert scope_of(f"sb://host/{scope}").covers(path_of(path)) is covered


@given(scope=SEGMENTS, path=SEGMENTS, slash=st.sampled_from(["", "/"]))
def test_a_scope_covers_a_path_if_it_is_a_prefix_and_each_segment_ends_in_a_slash(
    scope: list[str], path: list[str], slash: str
) -> None:
    above = "".join(f"{name}/" for name in scope).lower()
    below = "".join(f"{name}/" for name in path).lower()
    tail = slash if scope else ""
    assert scope_of(f"sb://h/{'/'.join(scope)}{tail}").covers(path_of("/".join(path))) is below.startswith(above)


@given(st.text())
def test_any_text_is_an_address_or_is_refused(text: str) -> None:
    try:
        scope = scope_of(text)
    except BadScope:
        return
    assert scope.host
    assert not {"", ".", ".."} & set(scope.path)
    assert scope_of("/".join((f"sb://{scope.host}", *scope.path))) == scope or set("?#") & set("".join(scope.path))


def test_the_levels_of_a_scope_start_with_the_outermost() -> None:
    assert scope_of("sb://h/Topic/Subscriptions/s").levels() == [
        "topic",
        "topic/subscriptions",
        "topic/subscriptions/s",
    ]
    assert scope_of("sb://h").levels() == []


@pytest.mark.parametrize(
    ("host", "other", "same"),
    [
        ("localhost", "LOCALHOST:5672", True),
        ("::1", "[::1]:5672", True),
        ("a.example", "b.example", False),
        ("a.example", "a.example.evil", False),
        ("", "", False),
        ("a b", "a b", False),
    ],
)
def test_hosts_are_compared_without_case_and_port(host: str, other: str, same: bool) -> None:
    assert same_host(host, other) is same
