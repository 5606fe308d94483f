// Repeated ids are delivered once.

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { completed, isEmpty, range, received, take, withClient } from "./stage.mjs";

const soon = (milliseconds) => new Date(Date.now() + milliseconds);

/** Send an id once as "first", then seven times as "again": single, in lists and batches, and scheduled. */
async function sendInEveryWay(sender, messageId, more = {}) {
  const again = { body: "again", messageId, ...more };
  await sender.sendMessages({ ...again, body: "first" });
  await sender.sendMessages(again);
  await sender.sendMessages([again, again]);
  const batch = await sender.createMessageBatch();
  batch.tryAddMessage(again);
  await sender.sendMessages(batch);
  await sender.scheduleMessages([again, again], soon(-1000));
  await sender.scheduleMessages(again, soon(3_600_000));
}

describe("duplicates", { concurrency: true }, () => {
  test("on a queue", () =>
    withClient(async (client) => {
      const queue = take("detecting");
      const sender = client.createSender(queue);
      await sendInEveryWay(sender, "12345.2017/Payment");
      await sender.sendMessages({ body: "last", messageId: "last" });
      const messages = await received(client.createReceiver(queue), 2);
      assert.deepEqual(
        messages.map((message) => [message.body, message.messageId]),
        [["first", "12345.2017/Payment"], ["last", "last"]],
      );
    }));

  test("ids that are numbers and uuids keep their type and are delivered once", () =>
    withClient(async (client) => {
      const queue = take("detecting");
      const sender = client.createSender(queue);
      // This client writes a buffer of sixteen bytes as a uuid.
      const ids = [17, Buffer.from(range(16)), "text"];
      for (const _ of range(2)) for (const messageId of ids) await sender.sendMessages({ body: "x", messageId });
      for (const messageId of ["17", "00010203-0405-0607-0809-0a0b0c0d0e0f"]) {
        await sender.sendMessages({ body: "the same as text", messageId });
      }
      await sender.sendMessages({ body: "x", messageId: "last" });
      const messages = await received(client.createReceiver(queue), 4);
      assert.deepEqual(messages.map((message) => message.messageId), [...ids, "last"]);
    }));

  test("on a topic", () =>
    withClient(async (client) => {
      const topic = take("detecting-topic");
      const sender = client.createSender(topic);
      await sendInEveryWay(sender, "a", { applicationProperties: { price: 150 } });
      await sender.sendMessages({ body: "last", messageId: "last", applicationProperties: { price: 150 } });
      for (const name of ["all", "dear"]) {
        assert.deepEqual(await completed(client.createReceiver(topic, name), 2), ["first", "last"]);
      }
    }));

  test("on a queue with sessions", () =>
    withClient(async (client) => {
      const queue = take("detecting-sessions");
      const sender = client.createSender(queue);
      await sendInEveryWay(sender, "a", { sessionId: "s" });
      await sender.sendMessages({ body: "last", messageId: "last", sessionId: "s" });
      const holder = await client.acceptSession(queue, "s");
      assert.deepEqual(await completed(holder, 2), ["first", "last"]);
    }));

  test("on a partitioned queue, with and without a partition key", () =>
    withClient(async (client) => {
      const queue = take("detecting-partitioned");
      const sender = client.createSender(queue);
      await sendInEveryWay(sender, "a");
      for (const partitionKey of ["k", "l"]) {
        for (const body of [`first ${partitionKey}`, "again"]) {
          await sender.sendMessages({ body, messageId: "b", partitionKey });
        }
      }
      await sender.sendMessages({ body: "last", messageId: "last" });
      const receiver = client.createReceiver(queue);
      const found = await completed(receiver, 4);
      assert.deepEqual(found.sort(), ["first", "first k", "first l", "last"]);
      assert.ok(await isEmpty(receiver));
    }));
});
