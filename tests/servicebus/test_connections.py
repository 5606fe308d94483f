"""What a connection may have and be, apart from its links."""

from __future__ import annotations

from pathlib import Path

from amqp.client import BEGIN, frames, receiver, written
from oncebus.amqp.frames import AMQP_HEADER
from oncebus.amqp.performatives import Open

from .raw import Stage, play


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
