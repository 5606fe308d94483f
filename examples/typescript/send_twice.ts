// Send a message twice under the same id, and receive it once.

import { randomUUID } from "node:crypto";

import { ServiceBusClient, type ServiceBusReceivedMessage } from "@azure/service-bus";

const connection: string | undefined = process.env.SERVICEBUS_CONNECTION_STRING;
if (connection === undefined) throw new Error("SERVICEBUS_CONNECTION_STRING is not set.");

const client = new ServiceBusClient(connection);
const messageId = `order-${randomUUID()}`;

const sender = client.createSender("orders");
await sender.sendMessages({ body: "first", messageId });
await sender.sendMessages({ body: "second", messageId });

const receiver = client.createReceiver("orders");
let messages: ServiceBusReceivedMessage[];
do {
  messages = await receiver.receiveMessages(10, { maxWaitTimeInMs: 5000 });
  for (const message of messages) {
    console.log("received:", message.body);
    await receiver.completeMessage(message);
  }
} while (messages.length > 0);

await client.close();
