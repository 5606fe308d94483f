"""The exchange before the first AMQP frame: protocol headers and SASL.

    peer   SASL header         sasl-init               AMQP header
    here   SASL header, sasl-mechanisms  sasl-outcome  AMQP header     each answers the peer, as some peers wait

A peer may send its whole side at once. It may also start with the AMQP header and skip SASL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oncebus.amqp.composites import Binary, Name, Names, Text, Ubyte, composite, from_described, to_bytes
from oncebus.amqp.conditions import FRAMING_ERROR, NOT_ALLOWED, UNAUTHORIZED_ACCESS, Violation
from oncebus.amqp.decoding import decode_all
from oncebus.amqp.events import SaslInit
from oncebus.amqp.frames import (
    AMQP_HEADER,
    HEAD_SIZE,
    SASL_FRAME,
    SASL_HEADER,
    check_head,
    frame,
    is_header_so_far,
    unpack_head,
)
from oncebus.amqp.limits import MOST_FRAME_ELEMENTS
from oncebus.amqp.output import Output
from oncebus.amqp.types import Symbol

_FIRST, _INIT, _ASKED, _SECOND, _DONE = range(5)
_OK, _REFUSED = 0, 1


@composite(0x40, "sasl-mechanisms")
@dataclass(slots=True)
class SaslMechanisms:
    """The mechanisms that the server offers."""

    sasl_server_mechanisms: Names


@composite(0x41, "sasl-init")
@dataclass(slots=True)
class _SaslInit:
    mechanism: Name
    initial_response: Binary | None = None
    hostname: Text | None = None


@composite(0x44, "sasl-outcome")
@dataclass(slots=True)
class SaslOutcome:
    """The result of SASL: code 0 is success, 1 is an authentication failure."""

    code: Ubyte
    additional_data: Binary | None = None


class Handshake:
    """Reads and answers everything a peer sends before its first AMQP frame.

    `needed` is the number of bytes that the next `read` needs. While `is_asked`, no number of bytes is enough: the
    handshake waits for `answer`.
    """

    def __init__(self, mechanisms: Sequence[str], out: Output) -> None:
        self._mechanisms = [Symbol(name) for name in mechanisms]
        self._out = out
        self._state = _FIRST
        self.needed = 1

    @property
    def is_done(self) -> bool:
        """Return whether the handshake is complete and AMQP frames follow."""
        return self._state == _DONE

    @property
    def is_asked(self) -> bool:
        """Return whether the peer waits for `answer`."""
        return self._state == _ASKED

    def read(self, data: bytes, at: int, largest_frame: int) -> tuple[int, SaslInit | None]:
        """Read the next step if all its bytes are there. Return the position after it, and its event or None."""
        if self._state == _INIT:
            return self._read_init(data, at, largest_frame)
        return self._read_header(data, at), None

    def answer(self, ok: bool) -> None:
        """Write the result of SASL to the peer."""
        if self.is_asked:
            self._state = _SECOND
            self._out.write(frame(0, to_bytes(SaslOutcome(_OK if ok else _REFUSED)), SASL_FRAME))

    def _read_header(self, data: bytes, at: int) -> int:
        found = data[at : at + len(AMQP_HEADER)]
        allowed = (SASL_HEADER, AMQP_HEADER) if self._state == _FIRST else (AMQP_HEADER,)
        if not any(is_header_so_far(found, header) for header in allowed):
            # AMQP requires it: the peer learns which protocol the server supports.
            self._out.write(allowed[0])
            raise Violation(FRAMING_ERROR, f"The peer began with {found!r}, which is not an AMQP 1.0 header.")
        if len(found) < len(AMQP_HEADER):
            self.needed = len(found) + 1
            return at
        self._out.write(found)
        if found == SASL_HEADER:
            self._out.write(frame(0, to_bytes(SaslMechanisms(self._mechanisms)), SASL_FRAME))
            self._state = _INIT
            self.needed = HEAD_SIZE
        else:
            self._state = _DONE
        return at + len(found)

    def _read_init(self, data: bytes, at: int, largest_frame: int) -> tuple[int, SaslInit | None]:
        self.needed = HEAD_SIZE
        if len(data) - at < HEAD_SIZE:
            return at, None
        size, offset, kind, _ = unpack_head(data, at)
        problem = check_head(size, offset, kind, SASL_FRAME, largest_frame)
        if problem is not None:
            raise Violation(FRAMING_ERROR, problem)
        stop = at + size
        if stop > len(data):
            self.needed = size
            return at, None
        init = from_described(decode_all(data[at + 4 * offset : stop], most_elements=MOST_FRAME_ELEMENTS))
        if not isinstance(init, _SaslInit):
            raise Violation(NOT_ALLOWED, f"The peer sent {init!r:.100} instead of sasl-init.")
        self._state = _ASKED
        self.needed = 1
        if init.mechanism not in self._mechanisms:
            self.answer(False)
            raise Violation(UNAUTHORIZED_ACCESS, f"The SASL mechanism {init.mechanism!s:.100} is not offered.")
        return stop, SaslInit(str(init.mechanism), init.initial_response or b"", init.hostname)
