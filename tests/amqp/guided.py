"""`python -m amqp.guided FOLDER [libFuzzer's options]`: inputs for the engine and the codec, guided by coverage.

FOLDER gets the seeds, which come from whole conversations and from the values of the codec's tests. The fuzzer also
keeps the inputs there that reach new code. The first byte of an input selects the test for the rest:

    even    the codec: a value, and a message
    odd     the engine: bit 1 is whether the peer is trusted, bit 2 whether it starts with a client's first frames; the
            second byte is the seed of the server's answers; then come frames, each as a length, a channel and a body
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from random import Random

import atheris

with atheris.instrument_imports(include=["oncebus.amqp"]):
    from oncebus import amqp
    from oncebus.amqp.budget import check_elements
    from oncebus.amqp.connection import Connection
    from oncebus.amqp.decoding import decode, decode_all
    from oncebus.amqp.encoding import encode
    from oncebus.amqp.frames import HEAD_SIZE, frame
    from oncebus.amqp.sizes import skip
    from oncebus.amqp.types import Array, DecodeError, Described, EncodeError, Symbol, ULong
    from tests.amqp.conversations import STEPS, WHOLE, Server

_CODEC, _ENGINE, _TRUSTED, _GREETS = 0, 1, 2, 4
_GREETING = WHOLE[:3]
_MOST_FRAMES = 64


def seeds() -> list[bytes]:
    """Return the inputs from which the fuzzer starts."""
    found = [bytes((_CODEC,)) + encode(value) for value in _values()]
    found += [bytes((_CODEC,)) + message for message in _messages()]
    for step in STEPS[2:]:
        for said in step:
            found.append(bytes((_ENGINE | _TRUSTED | _GREETS, 1)) + _as_input(said))
        found.append(bytes((_ENGINE | _TRUSTED | _GREETS, 2)) + b"".join(map(_as_input, step)))
    found.append(bytes((_ENGINE, 3)) + b"".join(_as_input(said) for step in STEPS[1:] for said in step[1:]))
    return found


def _values() -> list[object]:
    return [
        [None, True, 1, "text", b"bytes", Symbol("s"), ULong(300)],
        {"a": [1, {"b": Described(ULong(1), [2])}]},
        Array(Symbol, ["a", "b"]),
        Array(list, [[1], [2]], (Symbol("d"),)),
    ]


def _messages() -> list[bytes]:
    properties = amqp.Properties(message_id="m", group_id="g", subject="s")
    whole = b"".join(amqp.encode_message(properties, {"n": 1}, b"body"))
    value = b"".join(amqp.encode_message(None, None, amqp.AmqpValue([1, 2])))
    return [whole, value, b"\x00\x53\x70\xc0\x02\x01\x41\x00\x53\x72\xc1\x05\x02\xa3\x01a\x43" + whole]


def _as_input(said: bytes) -> bytes:
    """Return a frame in the format of the engine's inputs."""
    body = said[HEAD_SIZE:]
    return len(body).to_bytes(2) + said[7:8] + body


def try_one(data: bytes) -> None:
    """Check that an input causes only documented exceptions and keeps the invariants."""
    if not data:
        return
    if data[0] & _ENGINE:
        _try_engine(data)
    else:
        _try_codec(data[1:])


def _try_codec(data: bytes) -> None:
    if not data:
        return
    try:
        value, stop = decode(data)
    except DecodeError:
        with contextlib.suppress(DecodeError):
            check_elements(data, 0, len(data), len(data))
    else:
        assert skip(data, 0, len(data)) == stop
        # Every element takes at least one byte, so the count cannot exceed the length.
        assert check_elements(data, 0, len(data), 2 * len(data)) <= stop
        again = decode_all(encode(value))
        assert repr(again) == repr(value)
    try:
        header, of_delivery, annotations, bare, body = amqp.split(data)
        head = amqp.annotate(bare, header, of_delivery, annotations)
        amqp.identity(head)
        amqp.filter_properties(head)
        amqp.with_application_properties(head, {"DeadLetterReason": "r"})
        amqp.decode_body(body)
    except (DecodeError, EncodeError):
        pass


def _try_engine(data: bytes) -> None:
    random = Random(data[1] if len(data) > 1 else 0)
    connection = Connection(container_id="server", most_unfinished_bytes=10_000, most_unsettled=20)
    if data[0] & _TRUSTED:
        connection.trust()
    server = Server(random, connection)
    if data[0] & _GREETS:
        for step in _GREETING:
            server.receive(step)
    at = 2
    for _ in range(_MOST_FRAMES):
        if at + 3 > len(data):
            break
        size, channel = int.from_bytes(data[at : at + 2]), data[at + 2]
        body = data[at + 3 : at + 3 + size]
        at += 3 + len(body)
        server.receive(frame(channel, body))
    server.receive(data[at:])
    server.see(connection.end_lost())
    server.drain()
    assert connection.end_lost() == []
    assert (connection.link_count, connection.out.unsettled, connection.unfinished_bytes) == (0, 0, 0)
    server.frames()


def main() -> None:
    """Write the seeds and run the fuzzer."""
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    for number, seed in enumerate(seeds()):
        (folder / f"seed-{number:03}").write_bytes(seed)
    atheris.Setup(sys.argv, try_one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
