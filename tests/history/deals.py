"""An AMQP client with transactions, frame by frame: the official Python client has none.

Each deal has a connection of its own, with links to one queue, to its $management and to the coordinator.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from oncebus import amqp
from oncebus.amqp.encoding import encode
from oncebus.amqp.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, frame
from oncebus.amqp.head import Properties
from oncebus.amqp.message import AmqpValue, Header
from oncebus.amqp.outcomes import Accepted, Declared, DeliveryState, Modified, Rejected, Released, TransactionalState
from oncebus.amqp.performatives import (
    Attach,
    Close,
    Coordinator,
    Detach,
    Disposition,
    End,
    Source,
    Target,
    Transfer,
    decode_performative,
)
from oncebus.amqp.types import Array, Described, Symbol, Timestamp, ULong
from tests.amqp.client import BEGIN, OPEN, credit, receiver, sender, transfer, written

from .entities import SINKS, uid_of, wire_form
from .history import Refused, Unanswered
from .operations import ABANDON, RELEASE, Message

T = TypeVar("T")
_PATIENCE = 20.0
_SENDER, _RECEIVER, _REQUESTS, _REPLIES, _CONTROL = range(5)
_OUTSIDE: dict[str, DeliveryState] = {RELEASE: Released(), ABANDON: Modified()}
_SECOND_MODE = 1


class Locked:
    """A message that a deal has received: its record for the history, its delivery id and its lock token."""

    def __init__(self, delivery: Transfer, payload: bytes) -> None:
        assert delivery.delivery_id is not None
        self.delivery = delivery.delivery_id
        self.token = uuid.UUID(bytes_le=delivery.delivery_tag)
        parts = amqp.split(payload)
        body: Any = amqp.decode_body(parts.body)
        name = str(amqp.message_id(parts.head))
        self.record = {
            "uid": uid_of(bytes(body).decode(), name),
            "id": name,
            "number": parts.annotations["x-opt-sequence-number"],
            "origin": None,
            "count": parts.header.delivery_count or 0,
            "session": None,
            "enqueued": parts.annotations["x-opt-enqueued-time"] * 1000,
        }


class Deal:
    """One transaction of one client. Errors of the connection raise `Unanswered`."""

    def __init__(self, connected: socket.socket, queue: str) -> None:
        self._socket, self._queue = connected, queue
        self._sent, self._requested = 0, 0
        self._txn_id = b""
        self._read = b""
        self._handles: dict[str, int] = {}
        """The broker's handles of our links, by name."""

    # Preparing

    def open(self, user: str, key: str) -> None:
        """Connect, attach all links and declare the transaction."""
        init = Described(ULong(0x41), [Symbol("PLAIN"), f"\0{user}\0{key}".encode(), "localhost"])
        self._write(SASL_HEADER + frame(0, encode(init), SASL_FRAME))
        self._exactly(len(SASL_HEADER))
        for _ in ("mechanisms", "outcome"):
            self._frame()
        self._write(AMQP_HEADER + written(OPEN) + written(BEGIN))
        self._exactly(len(AMQP_HEADER))
        management = f"{self._queue}/$management"
        self._attach(sender("control", _CONTROL, target=Coordinator()))
        self._attach(sender("sender", _SENDER, target=Target(self._queue)))
        self._attach(receiver("receiver", _RECEIVER, source=Source(self._queue), rcv_settle_mode=_SECOND_MODE))
        self._attach(sender("requests", _REQUESTS, target=Target(management)))
        self._attach(receiver("replies", _REPLIES, source=Source(management)))
        self._write(written(credit(100, _REPLIES)))
        declared = self._control(Described(ULong(0x31), [None]))
        if not isinstance(declared, Declared):
            raise Refused(f"not declared: {declared}")
        self._txn_id = declared.txn_id

    def receive(self, count: int, seconds: float) -> list[Locked]:
        """Return up to `count` messages that arrive within this many seconds."""
        self._write(written(credit(count, _RECEIVER)))
        found: list[Locked] = []
        self._socket.settimeout(seconds)
        try:
            while len(found) < count:
                found.append(Locked(*self._next(self._of("receiver"))))
        except TimeoutError:
            pass
        finally:
            self._socket.settimeout(_PATIENCE)
        return found

    # In the transaction

    def complete(self, locked: Locked) -> None:
        """Complete a message by its delivery."""
        outcome = TransactionalState(self._txn_id, Accepted())
        self._write(written(Disposition(role=True, first=locked.delivery, settled=False, state=outcome)))
        state = self._answer(locked.delivery, of_sender=False)
        if isinstance(state, TransactionalState) and isinstance(state.outcome, Accepted):
            return
        raise Refused(str(state))

    def complete_by_token(self, locked: Locked, session: str) -> None:
        """Complete a message by its lock token. The session id means nothing: the queue has no sessions."""
        body = {
            "disposition-status": "completed",
            "session-id": session,
            "lock-tokens": Array(uuid.UUID, [locked.token]),
        }
        self._request("update-disposition", body)

    def add(self, message: Message, due: float | None) -> int | None:
        """Send a message, or schedule it for the wall time `due` and return its number."""
        body, name, own = wire_form(SINKS[self._queue], message.uid, message.id, message.colour)
        encoded = amqp.encode_message(Properties(message_id=name), own, body.encode())
        if due is None:
            state = self._transfer(_SENDER, b"".join(encoded))
            if isinstance(state, TransactionalState) and isinstance(state.outcome, Accepted):
                return None
            raise Refused(str(state))
        parts = amqp.split(b"".join(encoded))
        annotations = {"x-opt-scheduled-enqueue-time": Timestamp(round(due * 1000))}
        whole = b"".join(amqp.deliverable(parts.head, parts.body, Header(), annotations))
        (number,) = self._request("schedule-message", {"messages": [{"message": whole}]})["sequence-numbers"]
        return int(number)

    def discharge(
        self, *, fail: bool, outside: Sequence[tuple[Locked, str]] = (), settled: bool = False, first: bool = True
    ) -> None:
        """Commit, or roll back. Raises `Refused` if the commit is refused.

        `outside` has outcomes outside of the transaction, to be written right before the discharge, or after it.
        """
        racing = b"".join(
            written(Disposition(role=True, first=each.delivery, settled=settled, state=_OUTSIDE[how]))
            for each, how in outside
        )
        number, discharge = self._control_frame(Described(ULong(0x32), [self._txn_id, fail]))
        self._write(racing + discharge if first else discharge + racing)
        state = self._answer(number, of_sender=True)
        if isinstance(state, Rejected):
            raise Refused(f"{state.error}")
        if not isinstance(state, Accepted):
            raise Unanswered(f"discharge: {state}")

    # Frames

    def _attach(self, attach: Attach) -> None:
        self._write(written(attach))
        answer, _ = self._next(lambda each: each if isinstance(each, Attach) and each.name == attach.name else None)
        self._handles[attach.name] = answer.handle

    def _of(self, name: str) -> Callable[[Any], Transfer | None]:
        """Return the function that chooses transfers of a link."""
        handle = self._handles[name]
        return lambda each: each if isinstance(each, Transfer) and each.handle == handle else None

    def _control(self, what: Described) -> DeliveryState | None:
        number, data = self._control_frame(what)
        self._write(data)
        return self._answer(number, of_sender=True)

    def _control_frame(self, what: Described) -> tuple[int, bytes]:
        payload = b"".join(amqp.encode_message(None, None, AmqpValue(what)))
        return self._transfer_frame(_CONTROL, payload, None, settled=False)

    def _transfer(self, handle: int, payload: bytes) -> DeliveryState | None:
        number, data = self._transfer_frame(handle, payload, TransactionalState(self._txn_id), settled=False)
        self._write(data)
        return self._answer(number, of_sender=True)

    def _transfer_frame(
        self, handle: int, payload: bytes, state: TransactionalState | None, *, settled: bool
    ) -> tuple[int, bytes]:
        number, self._sent = self._sent, self._sent + 1
        performative = transfer(number, handle, delivery_tag=number.to_bytes(4), state=state, settled=settled)
        return number, written(performative, payload)

    def _request(self, operation: str, body: dict[str, Any]) -> Any:
        """Make a request in the transaction and return the body of the answer."""
        self._requested += 1
        own = {"operation": f"com.microsoft:{operation}"}
        payload = b"".join(amqp.encode_message(Properties(message_id=str(self._requested)), own, AmqpValue(body)))
        state = TransactionalState(self._txn_id)
        self._write(self._transfer_frame(_REQUESTS, payload, state, settled=True)[1])
        _, answer = self._next(self._of("replies"))
        parts = amqp.split(answer)
        properties: Any = amqp.application_properties(parts.head)
        if properties["statusCode"] != 200:
            raise Refused(f"{properties['statusCode']} {properties.get('errorCondition')}")
        content: Any = amqp.decode_body(parts.body)
        return content.value

    def _answer(self, number: int, *, of_sender: bool) -> DeliveryState | None:
        """Return the state of the next answer to a delivery. `of_sender` says whether we sent the delivery."""

        def found(each: object) -> Disposition | None:
            if not isinstance(each, Disposition) or each.role is not of_sender:
                return None
            return each if each.first <= number <= (each.last or each.first) else None

        return self._next(found)[0].state

    def _next(self, wanted: Callable[[Any], T | None]) -> tuple[T, bytes]:
        """Return the next wanted frame with its payload, skipping others before it."""
        while True:
            body = self._frame()
            if not body:
                continue
            performative, at = decode_performative(body, 0, len(body))
            if isinstance(performative, Detach | End | Close):
                raise Unanswered(f"{performative}")
            found = wanted(performative)
            if found is not None:
                return found, body[at:]

    def _write(self, data: bytes) -> None:
        self._socket.sendall(data)

    def _frame(self) -> bytes:
        """Return the content of the next frame. After a time-out, nothing of it is lost."""
        self._wait_for(4)
        return self._exactly(int.from_bytes(self._read[:4], "big"))[8:]

    def _exactly(self, size: int) -> bytes:
        self._wait_for(size)
        data, self._read = self._read[:size], self._read[size:]
        return data

    def _wait_for(self, size: int) -> None:
        while len(self._read) < size:
            some = self._socket.recv(65536)
            if not some:
                raise ConnectionError("the broker closed the connection")
            self._read += some


@contextmanager
def dealing(connection_string: str, queue: str) -> Iterator[Deal]:
    """Yield a deal, and close its connection after the block: without a discharge, the broker rolls it back.

    Everything that goes wrong with the connection, in the block too, raises `Unanswered`.
    """
    given = dict(part.split("=", 1) for part in connection_string.split(";") if part)
    port = int(given["Endpoint"].rstrip("/").rpartition(":")[2])
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE) as connected:
            deal = Deal(connected, queue)
            deal.open(given["SharedAccessKeyName"], given["SharedAccessKey"])
            yield deal
    except OSError as error:
        raise Unanswered(repr(error)) from error
