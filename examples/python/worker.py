"""A worker on asyncio: renews the locks of the messages it works on, and dead-letters those it cannot process."""

import asyncio
import os
import uuid

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.aio import AutoLockRenewer, ServiceBusClient


async def work(message: ServiceBusReceivedMessage) -> None:
    """Process a message. Raises `ValueError` if its body is not a number."""
    print("done:", int(str(message)))


async def main() -> None:
    """Send three orders, process them, and print the dead letters."""
    connection = os.environ["SERVICEBUS_CONNECTION_STRING"]
    async with ServiceBusClient.from_connection_string(connection) as client, AutoLockRenewer() as renewer:
        async with client.get_queue_sender("orders") as sender:
            bodies = ["1", "two", "3"]
            await sender.send_messages([ServiceBusMessage(body, message_id=str(uuid.uuid4())) for body in bodies])

        async with client.get_queue_receiver("orders", max_wait_time=5, auto_lock_renewer=renewer) as receiver:
            async for message in receiver:
                try:
                    await work(message)
                except ValueError as error:
                    await receiver.dead_letter_message(message, reason="NotANumber", error_description=str(error))
                else:
                    await receiver.complete_message(message)

        dead = ServiceBusSubQueue.DEAD_LETTER
        async with client.get_queue_receiver("orders", sub_queue=dead, max_wait_time=5) as receiver:
            async for message in receiver:
                print("dead letter:", message, "because of", message.dead_letter_reason)
                await receiver.complete_message(message)


asyncio.run(main())
