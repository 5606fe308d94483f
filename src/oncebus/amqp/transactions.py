"""The requests to a coordinator: the peer declares a transaction and discharges it.

    declare     00 53 31 <list>   global-id
    discharge   00 53 32 <list>   txn-id, fail

Each is the value of a message on a link whose target is a coordinator. `oncebus.amqp.outcomes` has the answer to a
declare and the state of a delivery that belongs to a transaction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from oncebus.amqp.composites import Binary, Bool, Kind, composite, from_described
from oncebus.amqp.message import AmqpValue, decode_body, split
from oncebus.amqp.types import DecodeError

_Anything = Annotated[object, Kind("anything", lambda value: value, lambda value: value)]


@composite(0x31, "declare")
@dataclass(slots=True)
class Declare:
    """Begins a transaction. `global_id` would make it part of a distributed transaction."""

    global_id: _Anything | None = None


@composite(0x32, "discharge")
@dataclass(slots=True)
class Discharge:
    """Ends a transaction: commits it, or with `fail` rolls it back."""

    txn_id: Binary
    fail: Bool = False


def read_control(payload: bytes) -> Declare | Discharge:
    """Return the request in a message to a coordinator. Raises `DecodeError`."""
    content = decode_body(split(payload).body)
    value = from_described(content.value if isinstance(content, AmqpValue) else content)
    if not isinstance(value, Declare | Discharge):
        raise DecodeError("coordinator", 0, f"{value!r:.100} is neither a declare nor a discharge")
    return value
