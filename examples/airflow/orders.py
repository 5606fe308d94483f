"""A DAG that sends an order and receives it. Airflow's connection `azure_service_bus_default` has the broker."""

from airflow.providers.microsoft.azure.operators.asb import (
    AzureServiceBusReceiveMessageOperator,
    AzureServiceBusSendMessageOperator,
)
from airflow.sdk import DAG, chain

with DAG("orders", schedule=None):
    send = AzureServiceBusSendMessageOperator(
        task_id="send", queue_name="airflow-orders", message="two books", message_id="order-7"
    )
    receive = AzureServiceBusReceiveMessageOperator(
        task_id="receive",
        queue_name="airflow-orders",
        max_message_count=2,
        max_wait_time=60,
        message_callback=lambda message, _: print("Received:", message),
    )
    chain(send, receive)
