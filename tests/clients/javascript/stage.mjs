// Shared helpers of the scenarios: a client, entities, and ways to receive.

import { createHmac } from "node:crypto";

import { ServiceBusClient } from "@azure/service-bus";
import WebSocket from "ws";

export const connection = process.env.SERVICEBUS_CONNECTION_STRING;

const transport = process.env.WEBSOCKETS ? { webSocketOptions: { webSocket: WebSocket } } : {};

const left = JSON.parse(process.env.ENTITIES);

/** Return the name of an entity that no other scenario uses. */
export function take(kind) {
  const name = left[kind]?.shift();
  if (name === undefined) throw new Error(`no entity of the kind '${kind}' is left`);
  return name;
}

/** How long a message may take to arrive on a busy machine, in milliseconds. */
export const patience = 60_000;

/** Receive `count` messages, in as many calls as it takes. */
export async function received(receiver, count) {
  const found = [];
  while (found.length < count) {
    const some = await receiver.receiveMessages(count - found.length, { maxWaitTimeInMs: patience });
    if (some.length === 0) throw new Error(`only ${found.length} of ${count} messages came`);
    found.push(...some);
  }
  return found;
}

/** Receive and complete `count` messages, and return their bodies. */
export async function completed(receiver, count) {
  const messages = await received(receiver, count);
  for (const message of messages) await receiver.completeMessage(message);
  return messages.map((message) => message.body);
}

/** Wait until `count` messages are in a queue. The broker's own wait for the pipeline is limited to two seconds. */
export async function arrived(queue, count) {
  const deadline = Date.now() + patience;
  for (let there = -1; there !== count; ) {
    if (Date.now() > deadline) throw new Error(`${there} messages are in ${queue}, not ${count}`);
    // All receivers of a client share the position of the last peek.
    there = await withClient(async (client) => (await client.createReceiver(queue).peekMessages(100)).length);
  }
}

/** Return whether no message comes. */
export async function isEmpty(receiver) {
  return (await receiver.receiveMessages(1, { maxWaitTimeInMs: 1000 })).length === 0;
}

export const sleep = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

export const range = (count) => [...Array(count).keys()];

/** Return a connection string with a token that is valid for the given time. */
export function tokenString(seconds) {
  const [, endpoint, name, key] = connection.match(/^Endpoint=([^;]+);SharedAccessKeyName=([^;]+);SharedAccessKey=([^;]+)/);
  const resource = encodeURIComponent(`${endpoint}/`);
  const expiry = Math.floor(Date.now() / 1000) + seconds;
  const signature = encodeURIComponent(createHmac("sha256", key).update(`${resource}\n${expiry}`).digest("base64"));
  const token = `SharedAccessSignature sr=${resource}&sig=${signature}&se=${expiry}&skn=${name}`;
  return `Endpoint=${endpoint}/;SharedAccessSignature=${token};UseDevelopmentEmulator=true`;
}

/** Run a function with a client, and close the client in any case. */
export async function withClient(use, text = connection, options = {}) {
  const client = new ServiceBusClient(text, { ...transport, ...options });
  try {
    return await use(client);
  } finally {
    await client.close();
  }
}
