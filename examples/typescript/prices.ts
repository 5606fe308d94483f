// A topic with a subscription that gets only the messages its rule selects.

import { randomUUID } from "node:crypto";

import { ServiceBusClient, type ServiceBusMessage } from "@azure/service-bus";

interface Price {
  article: string;
  price: number;
}

function message(body: Price): ServiceBusMessage {
  return { body, messageId: randomUUID(), applicationProperties: { price: body.price } };
}

const client = new ServiceBusClient(process.env.SERVICEBUS_CONNECTION_STRING ?? "");

const sender = client.createSender("prices");
await sender.sendMessages([
  message({ article: "pen", price: 2 }),
  message({ article: "lamp", price: 120 }),
  message({ article: "desk", price: 400 }),
]);

const receiver = client.createReceiver("prices", "high");
let count = 0;
while (count < 2) {
  for (const received of await receiver.receiveMessages(10, { maxWaitTimeInMs: 5000 })) {
    const { article, price } = received.body as Price;
    console.log(`${article}: ${price}`);
    await receiver.completeMessage(received);
    count += 1;
  }
}

await client.close();
