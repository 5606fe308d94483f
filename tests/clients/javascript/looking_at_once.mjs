// A client sees its own sends at once: it peeks, counts and cancels right after sending. The tests run one by one,
// because a busy broker may answer before the pipeline is done. If it did, the test runs again with other entities.

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { ServiceBusAdministrationClient } from "@azure/service-bus";

import { range, take, withClient } from "./stage.mjs";

/** How often a test is repeated because of a busy broker before it fails. */
const times = 3;

/** How long the broker waits for sent messages, in milliseconds. */
const bound = 2000;

const later = () => new Date(Date.now() + 3_600_000);

class TooBusy extends Error {}

/** Time a query. Its result must be right if it was answered in time. */
async function looking(what, look) {
  const began = performance.now();
  try {
    await look();
  } catch (error) {
    const isIncomplete = error instanceof assert.AssertionError || error.code === "MessageNotFound";
    if (!isIncomplete || performance.now() - began < bound) throw error;
    throw new TooBusy(what, { cause: error });
  }
}

/** Repeat a play, with a new client, until all its queries were answered in time. */
async function inTime(play) {
  for (let left = times - 1; ; left -= 1) {
    try {
      return await withClient(play);
    } catch (error) {
      if (!(error instanceof TooBusy) || left === 0) throw error;
    }
  }
}

async function sendTen(sender) {
  for (const body of range(10)) await sender.sendMessages({ body, messageId: `${body}` });
}

describe("reading one's own sends", { concurrency: false }, () => {
  for (const kind of ["plain", "detecting"]) {
    test(`ten messages are peeked right after sending: ${kind}`, () =>
      inTime(async (client) => {
        const queue = take(kind);
        await sendTen(client.createSender(queue));
        const receiver = client.createReceiver(queue);
        await looking("peek", async () => {
          const peeked = await receiver.peekMessages(10);
          assert.deepEqual(peeked.map((message) => message.body), range(10));
        });
      }));

    test(`ten messages are counted right after sending: ${kind}`, () =>
      inTime(async (client) => {
        const queue = take(kind);
        const sender = client.createSender(queue);
        const administration = new ServiceBusAdministrationClient(process.env.ADMINISTRATION);
        const counted = (...expected) =>
          looking("count", async () => {
            const { activeMessageCount, scheduledMessageCount } = await administration.getQueueRuntimeProperties(queue);
            assert.deepEqual([activeMessageCount, scheduledMessageCount], expected);
          });
        await sendTen(sender);
        await counted(10, 0);
        await sender.scheduleMessages({ body: "later", messageId: "later" }, later());
        await counted(10, 1);
        if (kind === "detecting") {
          await sendTen(sender);
          await counted(10, 1);
        }
      }));
  }

  test("messages are cancelled right after scheduling", () =>
    inTime(async (client) => {
      const queue = take("plain");
      const sender = client.createSender(queue);
      const numbers = await sender.scheduleMessages(range(10).map((body) => ({ body })), later());
      await looking("cancel", () => sender.cancelScheduledMessages(numbers));
      assert.deepEqual(await client.createReceiver(queue).peekMessages(10), []);
    }));
});
