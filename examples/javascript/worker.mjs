// A worker: processes several messages at a time, and renews their locks for as long as they take.

import { randomUUID } from "node:crypto";

import { ServiceBusClient } from "@azure/service-bus";

const client = new ServiceBusClient(process.env.SERVICEBUS_CONNECTION_STRING);

const receiver = client.createReceiver("orders");
let left = 3;
const allDone = new Promise((resolve) => {
  receiver.subscribe(
    {
      async processMessage(message) {
        if (typeof message.body === "number") {
          console.log("done:", message.body);
        } else {
          await receiver.deadLetterMessage(message, { deadLetterReason: "NotANumber" });
        }
        left -= 1;
        if (left === 0) resolve();
      },
      async processError({ error }) {
        console.error(error);
      },
    },
    { maxConcurrentCalls: 5 },
  );
});

const sender = client.createSender("orders");
await sender.sendMessages([1, "two", 3].map((body) => ({ body, messageId: randomUUID() })));
await allDone;
await receiver.close();

const dead = client.createReceiver("orders", { subQueueType: "deadLetter" });
const [letter] = await dead.receiveMessages(1, { maxWaitTimeInMs: 5000 });
console.log("dead letter:", letter.body, "because of", letter.deadLetterReason);
await dead.completeMessage(letter);

await client.close();
