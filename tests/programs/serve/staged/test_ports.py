"""Tests that other users of the machine get nothing from the sockets of Spark and its Python workers."""

from __future__ import annotations

import os
import re
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.programs.serve.clients import everything_below
from tests.programs.serve.stage import Stage

_LISTENING = {"tcp": "0A", "tcp6": "0A"}
_UNIX_LISTENING = "00010000"
_SECONDS = 20
# A call of Py4J's, and one of Spark's RPC that carries a Java object, the string "hello".
PY4J_CALL = b"c\nt\ngetClass\ne\n"
_OBJECT = bytes.fromhex("aced0005740005") + b"hello"


def rpc_call(port: int) -> bytes:
    def text(value: str) -> bytes:
        return struct.pack(">H", len(value)) + value.encode()

    body = b"\0\1" + text("127.0.0.1") + struct.pack(">i", port) + text("endpoint-verifier") + _OBJECT
    message = struct.pack(">bqi", 3, 1, len(body)) + body
    return struct.pack(">q", 8 + len(message)) + message


def answer(port: int, call: bytes) -> bytes:
    """Return the beginning of a port's answer to a call; empty if it just closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=_SECONDS) as peer:
        peer.sendall(call)
        found = b""
        with suppress(ConnectionResetError):
            while len(found) < 200 and (more := peer.recv(4096)):
                found += more
        return found


def test_a_stranger_is_refused_at_every_port_of_the_pipeline(stage: Stage) -> None:
    processes = [pid for pid in stage.pipeline_processes() if is_of_spark(pid)]
    ports = sorted(listening_ports(processes))
    assert len(ports) >= 3, "Spark's RPC and block manager, and Py4J"
    said = {port: answer(port, PY4J_CALL) for port in ports}
    gateways = [port for port, text in said.items() if b"Authentication error" in text]
    assert len(gateways) == 1, said
    for port in ports:
        if port not in gateways:
            # Without authentication the driver would deserialize the object and complain about its type.
            refusal = answer(port, rpc_call(port))
            assert b"Expected SaslMessage" in refusal, (port, refusal)
            assert b"hello" not in refusal


def test_the_workers_listen_where_only_their_user_can_connect(stage: Stage) -> None:
    processes = [pid for pid in stage.pipeline_processes() if is_of_spark(pid)]
    sockets = sorted(unix_sockets(processes))
    assert len(sockets) >= 2, "the daemon of the workers and the driver's accumulators"
    for path in sockets:
        folder = path.parent.stat()
        assert (folder.st_mode & 0o777, folder.st_uid) == (0o700, os.getuid()), path


def test_no_command_line_has_a_secret(stage: Stage) -> None:
    for pid in everything_below(os.getpid()):
        with suppress(OSError):
            assert b"secret" not in Path(f"/proc/{pid}/cmdline").read_bytes().lower()


def is_of_spark(pid: int) -> bool:
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        return "pipeline" in words or "pyspark.daemon" in words or "org.apache.spark.deploy.SparkSubmit" in words
    return False


def listening_ports(processes: list[int]) -> Iterator[int]:
    inodes = set(inodes_of(processes))
    for name, state in _LISTENING.items():
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == state and fields[9] in inodes:
                yield int(fields[1].rpartition(":")[2], 16)


def unix_sockets(processes: list[int]) -> Iterator[Path]:
    inodes = set(inodes_of(processes))
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split(maxsplit=7)
        if fields[3] == _UNIX_LISTENING and fields[6] in inodes:
            yield Path(fields[7])


def inodes_of(processes: list[int]) -> Iterator[str]:
    for pid in processes:
        with suppress(OSError):
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    if found := re.fullmatch(r"socket:\[(\d+)\]", str(descriptor.readlink())):
                        yield found[1]
