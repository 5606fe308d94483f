"""The limits and credentials of connections."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from oncebus.amqp.connection import Connection
from oncebus.amqp.events import SaslInit
from oncebus.amqp.frames import AMQP_HEADER
from oncebus.amqp.performatives import Close, Detach, Open
from oncebus.model.access import (
    AccessRefused,
    AuthorizationRule,
    Grant,
    Guard,
    KeyFileError,
    Operation,
    Right,
    WhichKey,
    make_token,
)
from oncebus.protocols.servicebus import AmqpLimits, server
from oncebus.protocols.servicebus.connection import ClientConnection
from oncebus.values.durations import HOUR, MINUTE, SECOND
from tests.amqp.client import BEGIN, OPEN, frames, receiver, written
from tests.amqp.sockets import until

from .bus import LISTENER, NAMESPACE, PATIENCE, ROOT, SENDER
from .raw import Here, RawClient, Stage, of, play


def test_a_client_may_have_a_session_for_each_of_its_links(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        connection = stage.server.make_protocol().connection
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
    """A peer that has connected and sent nothing."""

    def __init__(self, stage: Stage) -> None:
        self.connection = Connection(container_id="server")
        self.wire = Here()
        self.client: ClientConnection = stage.server._client(self.connection, self.wire)

    def answers(self) -> list[object]:
        """Open the connection and return the answers."""
        self.client.on_events(self.connection.receive(AMQP_HEADER + written(OPEN)))
        return self.sent()

    def sent(self) -> list[object]:
        """Return the frames for the peer since the last call."""
        return [each.performative for each in frames(b"".join(self.connection.output()).removeprefix(AMQP_HEADER))]

    def sign_in(self, rule: AuthorizationRule) -> None:
        """Open the connection with a key."""
        self.answers()
        self.client.credentials.sign_in(f"\0{rule.name}\0{rule.primary_key}".encode())
        self.client._note_trusted()


def test_unauthenticated_peers_take_no_place_from_authenticated_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(stage: Stage) -> None:
        def disconnected(peers: list[Peer]) -> list[bool]:
            return [each.wire.is_cut for each in peers]

        strangers = [Peer(stage) for _ in range(10)]
        assert disconnected(strangers) == [True] * 8 + [False] * 2
        known = [Peer(stage) for _ in range(2)]
        assert disconnected(strangers) == [True] * 10
        for each in known:
            each.client._note_trusted()
        strangers = [Peer(stage) for _ in range(10)]
        assert disconnected([*known, *strangers]) == [False] * 2 + [True] * 8 + [False] * 2
        third = Peer(stage)
        third.client._note_trusted()
        assert stage.server.counts.connections == 4
        # Now the limit is reached.
        late = Peer(stage)
        assert [type(answer) for answer in late.answers()] == [Open]
        late.client._note_trusted()
        (close,) = late.sent()
        assert isinstance(close, Close)
        assert close.error is not None
        assert close.error.description == "The namespace already has 3 connections."
        assert not any(disconnected([*known, third, late]))
        for each in (late, third):
            each.client.on_lost()
        assert [type(answer) for answer in Peer(stage).answers()] == [Open]

    play(tmp_path, scenario, AmqpLimits(connections=3, strangers=2, closing_seconds=0.01))
    assert len([record for record in caplog.records if record.name == "oncebus.protocols.listening"]) == 1


def test_refused_connections_count_as_strangers(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        first = Peer(stage)
        first.client._note_trusted()
        others = [Peer(stage) for _ in range(110)]
        assert [each.wire.is_cut for each in others] == [True] * 108 + [False] * 2
        assert not first.wire.is_cut

    play(tmp_path, scenario, AmqpLimits(connections=1, strangers=2, closing_seconds=0.01))


def test_strangers_that_authenticate_at_the_same_time_do_not_exceed_the_limit(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        peers = [Peer(stage) for _ in range(2)]
        for each in peers:
            each.client._note_trusted()
        assert isinstance(peers[1].answers()[-1], Close)
        assert len(stage.server._known) == 1

    play(tmp_path, scenario, AmqpLimits(connections=1, strangers=2, closing_seconds=0.01))


def test_keys_share_the_connections(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        def signed_in(rule: AuthorizationRule) -> Peer:
            peer = Peer(stage)
            peer.sign_in(rule)
            return peer

        def closed(*peers: Peer) -> list[bool]:
            return [any(isinstance(each, Close) for each in peer.sent()) for peer in peers]

        greedy = [signed_in(SENDER) for _ in range(4)]
        assert closed(*greedy, signed_in(SENDER)) == [False] * 4 + [True]
        modest = [signed_in(LISTENER) for _ in range(2)]
        # The newest of the key with the most connections have given way.
        assert closed(*greedy, *modest) == [False, False, True, True, False, False]
        assert len(stage.server._known) == 4
        # Now both have equally many.
        assert closed(signed_in(LISTENER), signed_in(SENDER), *greedy[:2], *modest) == [True, True] + [False] * 4
        # A third key has none, two fewer than the others.
        assert closed(signed_in(ROOT), *greedy[:2], *modest) == [False, False, True, False, False]

    play(tmp_path, scenario, AmqpLimits(connections=4, strangers=10, closing_seconds=0.01))


def test_a_client_that_is_no_longer_trusted_takes_no_place_from_trusted_ones(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        peers = [Peer(stage) for _ in range(2)]
        for each, rule in zip(peers, (ROOT, LISTENER), strict=True):
            response = f"\0{rule.name}\0{rule.primary_key}".encode()
            each.client.on_events([SaslInit("PLAIN", response, None)])
        late = Peer(stage)
        late.sign_in(SENDER)
        assert isinstance(late.sent()[-1], Close)
        late.client.on_lost()
        rules_are(stage, LISTENER)
        for each in peers:
            each.client.check(has_changed=True)
        assert [type(answer) for answer in Peer(stage).answers()] == [Open]
        # It counts as a stranger now: with too many of them it is disconnected, and the other stays.
        strangers = [Peer(stage) for _ in range(3)]
        assert [each.wire.is_cut for each in (*peers, *strangers)] == [True, False, True, False, False]

    play(tmp_path, scenario, AmqpLimits(connections=2, strangers=2, closing_seconds=0.01))


@pytest.mark.parametrize("expired", [False, True], ids=["key back", "token put again"])
def test_a_client_that_is_trusted_again_gets_its_place_back(tmp_path: Path, expired: bool) -> None:
    async def scenario(stage: Stage) -> None:
        peer = Peer(stage)
        if expired:
            end = stage.server.front.now() + MINUTE
            peer.client.credentials.put(make_token("sb://localhost/", ROOT.name, ROOT.primary_key, end))
            peer.client._note_trusted()
            stage.time.advance(61)
        else:
            response = f"\0{ROOT.name}\0{ROOT.primary_key}".encode()
            peer.client.on_events([SaslInit("PLAIN", response, None)])
            rules_are(stage)
        assert peer.client in stage.server._known
        peer.client.check(has_changed=not expired)
        assert peer.client not in stage.server._known
        if expired:
            end = stage.server.front.now() + MINUTE
            peer.client.credentials.put(make_token("sb://localhost/", ROOT.name, ROOT.primary_key, end))
            peer.client._note_trusted()
        else:
            rules_are(stage, ROOT)
            peer.client.check(has_changed=True)
        assert peer.client in stage.server._known
        strangers = [Peer(stage) for _ in range(3)]
        assert [each.wire.is_cut for each in (peer, *strangers)] == [False, True, False, False]

    play(tmp_path, scenario, AmqpLimits(connections=2, strangers=2, closing_seconds=0.01))


def test_a_wrong_key_is_not_tried_on_every_entity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(stage: Stage) -> None:
        for number in range(20):
            rule = AuthorizationRule("app", frozenset({Right.SEND}), f"first-{number}", f"second-{number}")
            await stage.queue(f"q{number}", authorization_rules=(rule,))
        tried: list[str | None] = []
        verify = Guard.verify

        def counted(guard: Guard, token: str | None) -> Grant:
            tried.append(token)
            return verify(guard, token)

        monkeypatch.setattr(Guard, "verify", counted)
        for key, is_good in (("wrong", False), ("first-7", True), ("second-7", True)):
            credentials = Peer(stage).client.credentials
            assert credentials.sign_in(f"\0app\0{key}".encode()) is is_good
            if is_good:
                credentials.require(Operation.SEND, "q7")
                with pytest.raises(AccessRefused):
                    credentials.require(Operation.SEND, "q8")
        # Each key is tried once on the namespace, and once on the only entity that has it.
        assert len(tried) == 5

    play(tmp_path, scenario)


def signed_in(stage: Stage) -> RawClient:
    """Return a client that signed in with the name and key of the root rule, not with a token."""
    client = stage.client(is_signed_in=False)
    response = f"\0{ROOT.name}\0{ROOT.primary_key}".encode()
    client.peer.on_events([SaslInit("PLAIN", response, None)])
    assert client.connection.is_trusted
    return client


def broken() -> Sequence[AuthorizationRule]:
    raise KeyFileError("The key file cannot be read.")


def test_a_client_that_signed_in_with_a_key_stays_as_long_as_the_key_is_valid(tmp_path: Path) -> None:
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


def test_an_additional_token_of_another_rule_outlives_the_key(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = signed_in(stage)
        end = stage.server.front.now() + HOUR
        client.peer.credentials.put(make_token("sb://localhost/orders", LISTENER.name, LISTENER.primary_key, end))
        await stage.queue("other")
        await client.attached(of("orders", "r1", 1))
        await client.attached(of("other", "r2", 2))
        stage.server.front.guard._namespace_rules = lambda: (SENDER, LISTENER)
        stage.time.advance(60)
        client.peer.check()
        assert [each.link.name for each in client.peer.links] == ["r1"]

    play(tmp_path, scenario)


def rules_are(stage: Stage, *rules: AuthorizationRule) -> None:
    """Replace the rules of the namespace."""
    stage.server.front.guard._namespace_rules = lambda: rules


@pytest.mark.parametrize(
    "rule",
    [ROOT.rotate_key(WhichKey.PRIMARY), None, replace(ROOT, rights=frozenset({Right.SEND}))],
    ids=["key rotated", "rule removed", "right taken away"],
)
def test_tokens_end_with_the_key_that_signed_them(tmp_path: Path, rule: AuthorizationRule | None) -> None:
    async def scenario(stage: Stage) -> None:
        client, other = stage.client(), stage.client(is_signed_in=False)
        token = make_token("sb://localhost/orders", LISTENER.name, LISTENER.primary_key, stage.time.now + HOUR)
        other.peer.credentials.put(token)
        for each in (client, other):
            await each.attached(of("orders"))
        await client.attached(of("orders/$management", "m", 1))
        rules_are(stage, LISTENER, *([] if rule is None else [rule]))
        # For an attach, the change takes effect at once.
        assert (await client.refused(of("orders", "late", 2)))[0] == "amqp:unauthorized-access"
        client.peer.check(has_changed=True)
        other.peer.check(has_changed=True)
        detach, _ = await client.next(Detach)
        assert detach.error is not None
        assert detach.error.condition == "amqp:unauthorized-access"
        assert [each.link.name for each in client.peer.links] == (
            ["m"] if rule is not None and rule.rights != ROOT.rights else []
        )
        assert len(other.peer.links) == 1

    play(tmp_path, scenario)


def test_links_are_checked_soon_after_a_change_of_keys(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        stage.server._watching = asyncio.create_task(stage.server._watch())
        await asyncio.sleep(0)
        end = stage.time.now + HOUR
        peer = Peer(stage)
        peer.client.credentials.put(make_token("sb://localhost/", ROOT.name, ROOT.primary_key, end))
        peer.client._note_trusted()
        peer.answers()
        peer.client.on_events(peer.connection.receive(written(BEGIN) + written(of("orders"))))
        assert len(peer.client.links) == 1
        rules_are(stage, SENDER)
        await until(lambda: not peer.client.links)
        peer.client.on_lost()

    play(tmp_path, scenario, AmqpLimits(look_seconds=0.01, closing_seconds=0.01))


def test_checking_many_links_does_not_block_other_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CHECKED_AT_ONCE", 4)

    async def scenario(stage: Stage) -> None:
        turn, turns = 0, []
        check = ClientConnection.check

        def noted(client: ClientConnection, has_changed: bool = False) -> None:
            turns.append(turn)
            check(client, has_changed)

        monkeypatch.setattr(ClientConnection, "check", noted)
        clients = [stage.client() for _ in range(5)]
        for each in clients:
            for number in range(2):
                await each.attached(of("orders", f"r{number}", number))
        assert {each.peer.weight for each in clients} == {4}
        stage.server._clients.update(each.peer for each in clients)
        stage.server._watching = asyncio.create_task(stage.server._watch())
        await asyncio.sleep(0)
        rules_are(stage, ROOT, LISTENER)
        async with asyncio.timeout(PATIENCE):
            while len(turns) < 5:
                await asyncio.sleep(0)
                turn += 1
        assert len(set(turns)) == 5

    play(tmp_path, scenario, AmqpLimits(look_seconds=0.01, closing_seconds=0.01))


def test_when_a_token_expires_only_its_own_links_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(stage: Stage) -> None:
        client, now = stage.client(is_signed_in=False), stage.time.now
        client.connection.trust()
        for number in range(20):
            await stage.queue(f"q{number}")
            end = now + (30 + number) * SECOND
            client.peer.credentials.put(make_token(f"sb://localhost/q{number}", ROOT.name, ROOT.primary_key, end))
            await client.attached(of(f"q{number}", f"r{number}", number))
        looks: list[str] = []
        judged = Grant.require

        def require(grant: Grant, operation: Operation, path: str, *, now: int) -> None:
            looks.append(path)
            judged(grant, operation, path, now=now)

        monkeypatch.setattr(Grant, "require", require)
        stage.time.advance(30)
        client.peer.check()
        assert looks == ["q0"]
        stage.time.advance(1)
        client.peer.check()
        assert looks == ["q0", "q1"]
        detach, _ = await client.next(Detach)
        assert detach.error is not None
        assert detach.error.description is not None
        assert detach.error.description.startswith("ExpiredToken")
        # A renewed token keeps its link.
        client.peer.credentials.put(make_token("sb://localhost/q2", ROOT.name, ROOT.primary_key, now + HOUR))
        stage.time.advance(1)
        client.peer.check()
        assert len(client.peer.links) == 18

    play(tmp_path, scenario)


def test_nobody_signs_in_while_the_keys_cannot_be_read(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        stage.server.front.guard._namespace_rules = broken
        client = stage.client(is_signed_in=False)
        response = f"\0{ROOT.name}\0{ROOT.primary_key}".encode()
        client.peer.on_events([SaslInit("PLAIN", response, None)])
        assert not client.connection.is_trusted

    play(tmp_path, scenario)
