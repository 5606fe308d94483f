"""What a connection may have and be, apart from its links."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from amqp.client import BEGIN, OPEN, frames, receiver, written
from oncebus.access import AuthorizationRule, KeyFileError, make_token
from oncebus.amqp.connection import Connection
from oncebus.amqp.events import SaslInit
from oncebus.amqp.frames import AMQP_HEADER
from oncebus.amqp.performatives import Close, Detach, Open
from oncebus.durations import HOUR, MINUTE
from oncebus.servicebus import Limits
from oncebus.servicebus.connection import ClientConnection

from .bus import NAMESPACE, ROOT, SENDER
from .raw import Here, RawClient, Stage, of, play


def test_a_client_may_have_a_session_for_each_of_its_links(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        connection = stage.server._protocol().connection
        connection.trust()
        connection.receive(AMQP_HEADER + written(Open(container_id="client", channel_max=65535)))
        opened = frames(b"".join(connection.output()).removeprefix(AMQP_HEADER))[0].performative
        assert opened.channel_max + 1 >= stage.server.front.limits.links
        for channel in range(600):
            attach = receiver(f"r{channel}")
            connection.receive(written(BEGIN, channel=channel) + written(attach, channel=channel))
        assert (len(connection.sessions), connection.link_count) == (600, 600)

    play(tmp_path, scenario)


class Peer:
    """A peer that has connected, and not said anything."""

    def __init__(self, stage: Stage) -> None:
        self.connection = Connection(container_id="server")
        self.wire = Here()
        self.client: ClientConnection = stage.server._client(self.connection, self.wire)

    def answers(self) -> list[object]:
        """What it is told as it opens."""
        self.client.on_events(self.connection.receive(AMQP_HEADER + written(OPEN)))
        return [each.performative for each in frames(b"".join(self.connection.output()).removeprefix(AMQP_HEADER))]


def test_peers_that_have_not_shown_who_they_are_take_no_place_from_those_that_have(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(stage: Stage) -> None:
        def cut(peers: list[Peer]) -> list[bool]:
            return [each.wire.is_cut for each in peers]

        strangers = [Peer(stage) for _ in range(10)]
        assert cut(strangers) == [True] * 8 + [False] * 2
        known = [Peer(stage) for _ in range(2)]
        assert cut(strangers) == [True] * 10
        for each in known:
            each.client._trusted()
        strangers = [Peer(stage) for _ in range(10)]
        assert cut([*known, *strangers]) == [False] * 2 + [True] * 8 + [False] * 2
        third = Peer(stage)
        third.client._trusted()
        assert stage.server.counts.connections == 4
        # Now there are as many as may be.
        late = Peer(stage)
        *_, close = late.answers()
        assert isinstance(close, Close)
        assert close.error is not None
        assert close.error.description == "The namespace has 3 connections already."
        assert not any(cut([*known, third, late]))
        for each in (late, third):
            each.client.on_lost()
        assert [type(told) for told in Peer(stage).answers()] == [Open]

    play(tmp_path, scenario, Limits(connections=3, strangers=2, closing_seconds=0.01))
    assert len([record for record in caplog.records if record.name == "oncebus.servicebus.server"]) == 1


def test_refused_connections_are_no_more_than_a_few(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        first = Peer(stage)
        first.client._trusted()
        others = [Peer(stage) for _ in range(110)]
        assert [each.wire.is_cut for each in others] == [False] * 102 + [True] * 8

    play(tmp_path, scenario, Limits(connections=1, strangers=2, closing_seconds=0.01))


def signed_in(stage: Stage) -> RawClient:
    """A client that has signed in with the name and key of the root rule, not with a token."""
    client = stage.client(is_signed_in=False)
    response = f"\0{ROOT.name}\0{ROOT.primary_key}".encode()
    client.peer.on_events([SaslInit("PLAIN", response, None)])
    assert client.connection.is_trusted
    return client


def broken() -> Sequence[AuthorizationRule]:
    raise KeyFileError("The key file cannot be read.")


def test_who_signed_in_with_a_key_stays_as_long_as_the_key_is_good(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = signed_in(stage)
        await client.attached(of("orders"))
        for rules in (lambda: NAMESPACE, broken):
            stage.server.front.guard._namespace_rules = rules
            assert client.peer.deadline == stage.time.now + MINUTE
            stage.time.advance(60)
            client.peer.check()
            assert len(client.peer.links) == 1
        stage.server.front.guard._namespace_rules = lambda: (SENDER,)
        stage.time.advance(59)
        client.peer.check()
        assert len(client.peer.links) == 1
        stage.time.advance(1)
        client.peer.check()
        detach, _ = await client.next(Detach)
        assert detach.error is not None
        assert detach.error.condition == "amqp:unauthorized-access"

    play(tmp_path, scenario)


def test_a_token_put_besides_outlives_the_key(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = signed_in(stage)
        end = stage.server.front.now() + HOUR
        client.peer.credentials.put(make_token("sb://localhost/orders", ROOT.name, ROOT.primary_key, end))
        await stage.queue("other")
        await client.attached(of("orders", "r1", 1))
        await client.attached(of("other", "r2", 2))
        stage.server.front.guard._namespace_rules = lambda: (SENDER,)
        stage.time.advance(60)
        client.peer.check()
        assert [each.link.name for each in client.peer.links] == ["r1"]

    play(tmp_path, scenario)


def test_nobody_signs_in_while_the_keys_cannot_be_read(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        stage.server.front.guard._namespace_rules = broken
        client = stage.client(is_signed_in=False)
        response = f"\0{ROOT.name}\0{ROOT.primary_key}".encode()
        client.peer.on_events([SaslInit("PLAIN", response, None)])
        assert not client.connection.is_trusted

    play(tmp_path, scenario)
