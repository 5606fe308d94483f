// Who has just sent sees it: looks, counts and cancels at once. One after another: a busy broker answers before it is done.
// Where it did, all is played once more with other entities.

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { ServiceBusAdministrationClient } from "@azure/service-bus";

import { range, take, withClient } from "./stage.mjs";

/** How often a busy broker is looked at before that is an error. */
const times = 3;

/** How long the broker waits for what was sent, in milliseconds. */
const bound = 2000;

const later = () => new Date(Date.now() + 3_600_000);

class TooBusy extends Error {}

/** A look that has to be right if it was answered in time. */
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

/** Play with a client of its own until all looks were answered in time. */
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

describe("looking at once", { concurrency: false }, () => {
  for (const kind of ["plain", "detecting"]) {
    test(`ten messages are peeked as soon as they were sent: ${kind}`, () =>
      inTime(async (client) => {
        const queue = take(kind);
        await sendTen(client.createSender(queue));
        const receiver = client.createReceiver(queue);
        await looking("peek", async () => {
          const peeked = await receiver.peekMessages(10);
          assert.deepEqual(peeked.map((message) => message.body), range(10));
        });
      }));

    test(`ten messages are counted as soon as they were sent: ${kind}`, () =>
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

  test("messages that were just scheduled are cancelled", () =>
    inTime(async (client) => {
      const queue = take("plain");
      const sender = client.createSender(queue);
      const numbers = await sender.scheduleMessages(range(10).map((body) => ({ body })), later());
      await looking("cancel", () => sender.cancelScheduledMessages(numbers));
      assert.deepEqual(await client.createReceiver(queue).peekMessages(10), []);
    }));
});
