"""Sends an order twice, as a client does whose first answer was lost, and receives it once. All in one trace."""

import os

from azure.core.settings import settings
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

# OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_SERVICE_NAME are read from the environment.
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
settings.tracing_implementation = "opentelemetry"

queue = os.environ["QUEUE"]
with ServiceBusClient.from_connection_string(os.environ["CONNECTION_STRING"]) as client:
    with trace.get_tracer("shop").start_as_current_span("order"), client.get_queue_sender(queue) as sender:
        for _ in range(2):
            sender.send_messages(ServiceBusMessage("two books", message_id="order-7"))
    with client.get_queue_receiver(queue) as receiver:
        for message in receiver.receive_messages(max_wait_time=60):
            receiver.complete_message(message)
            print("Received:", message)
provider.shutdown()
