"""Sessions: one receiver gets all messages of a basket in order, and keeps the sum in the session's state."""

import os
import uuid

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import OperationTimeoutError

names = [f"{name}-{uuid.uuid4()}" for name in ("anna", "bert")]

with ServiceBusClient.from_connection_string(os.environ["SERVICEBUS_CONNECTION_STRING"], retry_total=0) as client:
    with client.get_queue_sender("baskets") as sender:
        for amount in ("1", "2", "3"):
            sender.send_messages([ServiceBusMessage(amount, session_id=name) for name in names])

    while True:
        receiver = client.get_queue_receiver("baskets", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=5)
        try:
            with receiver:
                for message in receiver:
                    total = int(receiver.session.get_state() or b"0") + int(str(message))
                    receiver.session.set_state(str(total))
                    receiver.complete_message(message)
                name = receiver.session.session_id.partition("-")[0]
                print(f"{name}: {int(receiver.session.get_state() or b'0')}")
                receiver.session.set_state(None)
        except OperationTimeoutError:
            print("no more baskets")
            break
