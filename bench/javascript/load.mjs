// load.mjs single|batch|receive SECONDS: load by the official client for JavaScript.
//
// One sender awaits each message or each batch of 100; one receiver asks for 100 messages and completes them together.
// Of the queue that SERVICEBUS_CONNECTION_STRING and QUEUE name. Prints what bench.amqp_load prints.

import { randomUUID } from "node:crypto";
import { ServiceBusClient } from "@azure/service-bus";

const [kind, seconds] = process.argv.slice(2);
const BODY = Buffer.alloc(200, "x");
const BATCH = 100;

const message = () => ({ body: BODY, messageId: randomUUID() });
const messages = () => (kind === "single" ? message() : Array.from({ length: BATCH }, message));

const client = new ServiceBusClient(process.env.SERVICEBUS_CONNECTION_STRING);
let step;
if (kind === "receive") {
  const receiver = client.createReceiver(process.env.QUEUE);
  step = async () => {
    const got = await receiver.receiveMessages(BATCH, { maxWaitTimeInMs: 1000 });
    await Promise.all(got.map((each) => receiver.completeMessage(each)));
    return got.length;
  };
} else {
  const sender = client.createSender(process.env.QUEUE);
  step = async () => {
    await sender.sendMessages(messages());
    return kind === "single" ? 1 : BATCH;
  };
}

// The first step opens the connection and the link.
await step();
const began = performance.now();
const cpu = process.cpuUsage();
const end = began + Number(seconds) * 1000;
let count = 0;
let last = began;
while (performance.now() < end) {
  const done = await step();
  if (done === 0) break;
  count += done;
  last = performance.now();
}
const used = process.cpuUsage(cpu);
console.log(JSON.stringify({ messages: count, seconds: (last - began) / 1000, cpu: (used.user + used.system) / 1e6 }));
await client.close();
process.exit(0);
