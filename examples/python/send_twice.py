"""Send a message twice under the same id, and receive it once."""

import os
import uuid

from azure.servicebus import ServiceBusClient, ServiceBusMessage

order = f"order-{uuid.uuid4()}"

with ServiceBusClient.from_connection_string(os.environ["SERVICEBUS_CONNECTION_STRING"]) as client:
    with client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("first", message_id=order))
        sender.send_messages(ServiceBusMessage("second", message_id=order))

    with client.get_queue_receiver("orders", max_wait_time=5) as receiver:
        for message in receiver:
            print("received:", message)
            receiver.complete_message(message)
