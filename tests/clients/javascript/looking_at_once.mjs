// Who has just sent sees it: looks, counts and cancels at once. One after another: a busy broker answers before it is done.

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { ServiceBusAdministrationClient } from "@azure/service-bus";

import { range, take, withClient } from "./stage.mjs";

const later = () => new Date(Date.now() + 3_600_000);

async function sendTen(sender) {
  for (const body of range(10)) await sender.sendMessages({ body, messageId: `${body}` });
}

describe("looking at once", { concurrency: false }, () => {
  for (const kind of ["plain", "detecting"]) {
    test(`ten messages are peeked as soon as they were sent: ${kind}`, () =>
      withClient(async (client) => {
        const queue = take(kind);
        await sendTen(client.createSender(queue));
        const peeked = await client.createReceiver(queue).peekMessages(10);
        assert.deepEqual(peeked.map((message) => message.body), range(10));
      }));

    test(`ten messages are counted as soon as they were sent: ${kind}`, () =>
      withClient(async (client) => {
        const queue = take(kind);
        const sender = client.createSender(queue);
        const administration = new ServiceBusAdministrationClient(process.env.ADMINISTRATION);
        const counts = async () => {
          const { activeMessageCount, scheduledMessageCount } = await administration.getQueueRuntimeProperties(queue);
          return [activeMessageCount, scheduledMessageCount];
        };
        await sendTen(sender);
        assert.deepEqual(await counts(), [10, 0]);
        await sender.scheduleMessages({ body: "later", messageId: "later" }, later());
        assert.deepEqual(await counts(), [10, 1]);
        if (kind === "detecting") {
          await sendTen(sender);
          assert.deepEqual(await counts(), [10, 1]);
        }
      }));
  }

  test("messages that were just scheduled are cancelled", () =>
    withClient(async (client) => {
      const queue = take("plain");
      const sender = client.createSender(queue);
      const numbers = await sender.scheduleMessages(range(10).map((body) => ({ body })), later());
      await sender.cancelScheduledMessages(numbers);
      assert.deepEqual(await client.createReceiver(queue).peekMessages(10), []);
    }));
});
