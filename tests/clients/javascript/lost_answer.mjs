// Opens a sender, then sends a message for each line "send ID" that it reads.

import { createInterface } from "node:readline";

import { ServiceBusClient } from "@azure/service-bus";

const client = new ServiceBusClient(process.env.SERVICEBUS_CONNECTION_STRING, {
  // The client waits this long for an answer before it retries, even if its connection is lost.
  retryOptions: { timeoutInMs: 8000, retryDelayInMs: 500 },
});
const sender = client.createSender(process.env.QUEUE);
await sender.createMessageBatch();
console.log("open");
for await (const line of createInterface({ input: process.stdin })) {
  const messageId = line.split(" ")[1];
  await sender.sendMessages({ body: "x", messageId });
  console.log(`sent ${messageId}`);
}
await client.close();
