// Sends, batches, schedules.

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { arrived, completed, isEmpty, range, received, take, withClient } from "./stage.mjs";

const largest = 256 * 1024;

describe("sending", { concurrency: true }, () => {
  test("single messages, lists and batches arrive in the order they were sent", () =>
    withClient(async (client) => {
      const queue = take("plain");
      const [sender, receiver] = [client.createSender(queue), client.createReceiver(queue)];
      await sender.sendMessages({ body: 0 });
      await sender.sendMessages([{ body: 1 }, { body: 2 }]);
      const batch = await sender.createMessageBatch();
      assert.equal(batch.maxSizeInBytes, largest);
      for (const number of range(47)) assert.ok(batch.tryAddMessage({ body: number + 3 }));
      await sender.sendMessages(batch);
      assert.deepEqual(await completed(receiver, 50), range(50));
      assert.ok(await isEmpty(receiver));
    }));

  test("everything about a message comes back as it was sent", () =>
    withClient(async (client) => {
      const queue = take("plain");
      const sent = {
        body: { text: "ö", list: [1, null, 2.5] },
        messageId: "ödeme",
        sessionId: "s",
        partitionKey: "s",
        subject: "subject",
        contentType: "application/json",
        correlationId: "correlation",
        to: "to",
        replyTo: "reply",
        replyToSessionId: "reply session",
        timeToLive: 3_600_000,
        applicationProperties: { text: "ö", whole: 5, flag: true, real: 0.5 },
      };
      await client.createSender(queue).sendMessages(sent);
      const [got] = await received(client.createReceiver(queue), 1);
      for (const name of Object.keys(sent)) assert.deepEqual(got[name], sent[name], name);
      assert.equal(got.sequenceNumber.toString(), "1");
      assert.equal(got.deliveryCount, 0);
      assert.equal(got.expiresAtUtc - got.enqueuedTimeUtc, 3_600_000);
    }));

  test("bodies that are values, sequences and bytes come back as such", () =>
    withClient(async (client) => {
      const queue = take("plain");
      const sender = client.createSender(queue);
      await sender.sendMessages({ bodyType: "value", body: { a: 1 } });
      await sender.sendMessages({ bodyType: "sequence", body: [1, "x"] });
      await sender.sendMessages({ body: Buffer.from([0, 255]) });
      const [value, sequence, bytes] = await received(client.createReceiver(queue), 3);
      assert.deepEqual([value._rawAmqpMessage.bodyType, value.body], ["value", { a: 1 }]);
      assert.deepEqual([sequence._rawAmqpMessage.bodyType, sequence.body.flat()], ["sequence", [1, "x"]]);
      assert.deepEqual(Buffer.from(bytes.body), Buffer.from([0, 255]));
    }));

  test("a message up to the limit arrives, and only a larger one is refused", () =>
    withClient(async (client) => {
      const queue = take("plain");
      const sender = client.createSender(queue);
      const content = Buffer.alloc(largest - 1024, "x");
      await sender.sendMessages({ body: content });
      await assert.rejects(sender.sendMessages({ body: Buffer.alloc(largest + 1) }), { code: "MessageSizeExceeded" });
      await sender.sendMessages({ body: "small" });
      const [large, small] = await received(client.createReceiver(queue), 2);
      assert.ok(content.equals(Buffer.from(large.body)));
      assert.equal(small.body, "small");
      const batch = await sender.createMessageBatch();
      while (batch.tryAddMessage({ body: "x".repeat(5000) }));
      assert.ok(batch.sizeInBytes > largest - 6000 && batch.sizeInBytes <= largest);
      await sender.sendMessages(batch);
    }));

  test("scheduled messages are peeked, cancelled once, and arrive at their time", () =>
    withClient(async (client) => {
      const queue = take("plain");
      const [sender, receiver] = [client.createSender(queue), client.createReceiver(queue)];
      const later = new Date(Date.now() + 3_600_000);
      const numbers = await sender.scheduleMessages([{ body: "kept" }, { body: "cancelled" }], later);
      await arrived(queue, 2);
      const peeked = await receiver.peekMessages(5);
      assert.deepEqual(peeked.map((message) => [message.sequenceNumber.toString(), message.state]), [
        [numbers[0].toString(), "scheduled"],
        [numbers[1].toString(), "scheduled"],
      ]);
      assert.equal(peeked[0].scheduledEnqueueTimeUtc.getTime(), later.getTime());
      await sender.cancelScheduledMessages(numbers[1]);
      await assert.rejects(sender.cancelScheduledMessages(numbers[1]), { code: "MessageNotFound" });
      const soon = new Date(Date.now() + 2000);
      await sender.scheduleMessages({ body: "a" }, soon);
      await sender.sendMessages({ body: "b", scheduledEnqueueTimeUtc: new Date(soon.getTime() + 1000) });
      const messages = await received(receiver, 2);
      assert.deepEqual(messages.map((message) => message.body), ["a", "b"]);
      // Times have whole milliseconds.
      assert.ok(messages[0].enqueuedTimeUtc.getTime() >= soon.getTime() - 1);
    }));

  test("many concurrent clients share a queue, and none gets the message of another", async () => {
    const queue = take("plain");
    const names = ["a", "b", "c", "d"];
    const found = [];
    const send = (name) =>
      withClient(async (client) => {
        const sender = client.createSender(queue);
        for (const number of range(25)) await sender.sendMessages({ body: `${name}${number}` });
      });
    const receive = () =>
      withClient(async (client) => {
        const receiver = client.createReceiver(queue);
        while (found.length < 100) {
          for (const message of await receiver.receiveMessages(5, { maxWaitTimeInMs: 2000 })) {
            found.push(message.body);
            await receiver.completeMessage(message);
          }
        }
      });
    await Promise.all([...names.map(send), receive(), receive(), receive()]);
    assert.deepEqual(found.sort(), names.flatMap((name) => range(25).map((number) => `${name}${number}`)).sort());
  });

  test("many senders of one client at once", () =>
    withClient(async (client) => {
      const queue = take("plain");
      const names = ["a", "b", "c", "d"];
      await Promise.all(
        names.map(async (name) => {
          const sender = client.createSender(queue);
          await Promise.all(range(25).map((number) => sender.sendMessages({ body: `${name}${number}` })));
          await sender.close();
        }),
      );
      const found = await completed(client.createReceiver(queue), 100);
      assert.deepEqual(new Set(found), new Set(names.flatMap((name) => range(25).map((number) => `${name}${number}`))));
    }));
});
