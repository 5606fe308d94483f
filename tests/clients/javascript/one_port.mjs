// Messages and administration with one connection string, over TCP and over WebSockets.

import assert from "node:assert/strict";
import { test } from "node:test";

import { ServiceBusAdministrationClient, ServiceBusClient } from "@azure/service-bus";
import WebSocket from "ws";

const connection = process.env.SERVICEBUS_CONNECTION_STRING;

for (const [name, options] of Object.entries({ tcp: {}, websockets: { webSocketOptions: { webSocket: WebSocket } } })) {
  test(`messages over ${name}, and administration`, async () => {
    const administration = new ServiceBusAdministrationClient(connection);
    const queue = `javascript-${name}`;
    const made = await administration.createQueue(queue, { requiresDuplicateDetection: true });
    assert.equal(made.requiresDuplicateDetection, true);
    const client = new ServiceBusClient(connection, options);
    try {
      const sender = client.createSender(queue);
      for (const body of ["first", "second"]) await sender.sendMessages({ body, messageId: "a" });
      const receiver = client.createReceiver(queue);
      const [message] = await receiver.receiveMessages(1, { maxWaitTimeInMs: 60_000 });
      assert.equal(message.body, "first");
      await receiver.completeMessage(message);
      const { totalMessageCount } = await administration.getQueueRuntimeProperties(queue);
      assert.equal(totalMessageCount, 0);
      await administration.deleteQueue(queue);
    } finally {
      await client.close();
    }
  });
}
