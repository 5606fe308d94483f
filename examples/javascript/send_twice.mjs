// Send a message twice under the same id, and receive it once.

import { randomUUID } from "node:crypto";

import { ServiceBusClient } from "@azure/service-bus";

const client = new ServiceBusClient(process.env.SERVICEBUS_CONNECTION_STRING);
const messageId = `order-${randomUUID()}`;

const sender = client.createSender("orders");
await sender.sendMessages({ body: "first", messageId });
await sender.sendMessages({ body: "second", messageId });

const receiver = client.createReceiver("orders");
let messages = [];
do {
  messages = await receiver.receiveMessages(10, { maxWaitTimeInMs: 5000 });
  for (const message of messages) {
    console.log("received:", message.body);
    await receiver.completeMessage(message);
  }
} while (messages.length > 0);

await client.close();
