"""AMQP 1.0: `amqp.split`, `amqp.properties` and the others here read and write messages.

`oncebus.amqp.types` has the types of values, `oncebus.amqp.connection` is the engine of a connection, and
`oncebus.amqp.events` are the events it reports. Nothing here has a socket or a clock:
`oncebus.protocols.servicebus.transport` runs the engine over asyncio.
"""

from oncebus.amqp.head import (
    Id,
    Properties,
    application_properties,
    filter_properties,
    group_id,
    id_text,
    identity,
    message_id,
    properties,
    with_application_properties,
    with_properties,
)
from oncebus.amqp.message import (
    BATCH_FORMAT,
    AmqpSequence,
    AmqpValue,
    Body,
    Header,
    annotate,
    decode_body,
    deliverable,
    encode_body,
    encode_message,
    split,
    split_batch,
    split_plain,
)

__all__ = [
    "BATCH_FORMAT",
    "AmqpSequence",
    "AmqpValue",
    "Body",
    "Header",
    "Id",
    "Properties",
    "annotate",
    "application_properties",
    "decode_body",
    "deliverable",
    "encode_body",
    "encode_message",
    "filter_properties",
    "group_id",
    "id_text",
    "identity",
    "message_id",
    "properties",
    "split",
    "split_batch",
    "split_plain",
    "with_application_properties",
    "with_properties",
]
