// What the scenarios share: a client, entities of their own, and ways to receive.

import { createHmac } from "node:crypto";

import { ServiceBusClient } from "@azure/service-bus";

export const connection = process.env.SERVICEBUS_CONNECTION_STRING;

const left = JSON.parse(process.env.ENTITIES);

/** The name of an entity that nobody else uses. */
export function take(kind) {
  const name = left[kind]?.shift();
  if (name === undefined) throw new Error(`no more of the kind '${kind}'`);
  return name;
}

/** How long a message that is there, or will be, may take to come on a busy machine. */
export const patience = 60_000;

/** So many messages, in as many goes as it takes. */
export async function received(receiver, count) {
  const found = [];
  while (found.length < count) {
    const some = await receiver.receiveMessages(count - found.length, { maxWaitTimeInMs: patience });
    if (some.length === 0) throw new Error(`${found.length} of ${count} came`);
    found.push(...some);
  }
  return found;
}

/** The bodies of so many messages, which are gone then. */
export async function completed(receiver, count) {
  const messages = await received(receiver, count);
  for (const message of messages) await receiver.completeMessage(message);
  return messages.map((message) => message.body);
}

/** Wait until so many are in a queue. Who looks at once waits for the pipeline no longer than two seconds. */
export async function arrived(queue, count) {
  const deadline = Date.now() + patience;
  for (let there = -1; there !== count; ) {
    if (Date.now() > deadline) throw new Error(`${there} messages are in ${queue}, not ${count}`);
    // All receivers of a client go on peeking where the last one left off.
    there = await withClient(async (client) => (await client.createReceiver(queue).peekMessages(100)).length);
  }
}

/** Whether nothing comes. */
export async function isEmpty(receiver) {
  return (await receiver.receiveMessages(1, { maxWaitTimeInMs: 1000 })).length === 0;
}

export const sleep = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

export const range = (count) => [...Array(count).keys()];

/** A connection string with a token that is good for so long. */
export function tokenString(seconds) {
  const [, endpoint, name, key] = connection.match(/^Endpoint=([^;]+);SharedAccessKeyName=([^;]+);SharedAccessKey=([^;]+)/);
  const resource = encodeURIComponent(`${endpoint}/`);
  const expiry = Math.floor(Date.now() / 1000) + seconds;
  const signature = encodeURIComponent(createHmac("sha256", key).update(`${resource}\n${expiry}`).digest("base64"));
  const token = `SharedAccessSignature sr=${resource}&sig=${signature}&se=${expiry}&skn=${name}`;
  return `Endpoint=${endpoint}/;SharedAccessSignature=${token};UseDevelopmentEmulator=true`;
}

/** A client for the block, which is closed whatever happens. */
export async function withClient(use, text = connection, options = {}) {
  const client = new ServiceBusClient(text, options);
  try {
    return await use(client);
  } finally {
    await client.close();
  }
}
