// Sends and receives, waits for a line that says that the broker was restarted, and continues.

import assert from "node:assert/strict";
import { createInterface } from "node:readline";

import { ServiceBusClient } from "@azure/service-bus";

const client = new ServiceBusClient(process.env.SERVICEBUS_CONNECTION_STRING);
const sender = client.createSender(process.env.QUEUE);
const receiver = client.createReceiver(process.env.QUEUE);
const subscriber = client.createReceiver(process.env.QUEUE, { subQueueType: "deadLetter" });

const letters = [];
let resolveLetter;
const letterCame = new Promise((resolve) => (resolveLetter = resolve));
subscriber.subscribe({
  processMessage: async (message) => {
    letters.push(message.messageId);
    resolveLetter();
  },
  // The client also reports errors that it retries itself.
  processError: async () => {},
});

await sender.sendMessages({ body: 0, messageId: "a" });
const [first] = await receiver.receiveMessages(1, { maxWaitTimeInMs: 60_000 });
await receiver.completeMessage(first);
console.log("before");

for await (const line of createInterface({ input: process.stdin })) {
  assert.equal(line, "after");
  await sender.sendMessages([{ body: 1, messageId: "a" }, { body: 2, messageId: "b" }]);
  const [second] = await receiver.receiveMessages(1, { maxWaitTimeInMs: 90_000 });
  assert.deepEqual([second.body, second.messageId], [2, "b"]);
  await receiver.deadLetterMessage(second);
  await letterCame;
  assert.deepEqual(letters, ["b"]);
  console.log("done");
}
await client.close();
