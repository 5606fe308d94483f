// Receives and settles in every way this client has.

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { arrived, isEmpty, patience, range, received, sleep, take, withClient } from "./stage.mjs";

describe("receiving", { concurrency: true }, () => {
  test("every settlement does what it says", () =>
    withClient(async (client) => {
      const queue = take("plain");
      const [sender, receiver] = [client.createSender(queue), client.createReceiver(queue)];
      const dead = client.createReceiver(queue, { subQueueType: "deadLetter" });
      await sender.sendMessages(range(4).map((number) => ({ body: number, applicationProperties: { n: 1 } })));
      const [complete, abandon, defer, reject] = await received(receiver, 4);
      await receiver.completeMessage(complete);
      await receiver.abandonMessage(abandon, { n: 2, why: "later" });
      await receiver.deferMessage(defer);
      await receiver.deadLetterMessage(reject, { deadLetterReason: "why", deadLetterErrorDescription: "in words" });
      const [again] = await received(receiver, 1);
      assert.deepEqual([again.body, again.deliveryCount, again.applicationProperties], [1, 1, { n: 2, why: "later" }]);
      await receiver.completeMessage(again);
      const [deferred] = await receiver.receiveDeferredMessages(defer.sequenceNumber);
      assert.deepEqual([deferred.body, deferred.state], [2, "deferred"]);
      await receiver.completeMessage(deferred);
      const [letter] = await received(dead, 1);
      assert.deepEqual([letter.body, letter.deadLetterReason, letter.deadLetterErrorDescription], [3, "why", "in words"]);
      await dead.completeMessage(letter);
      assert.deepEqual(await receiver.peekMessages(5, { fromSequenceNumber: complete.sequenceNumber }), []);
    }));

  test("messages are peeked from the last position", () =>
    withClient(async (client) => {
      const queue = take("plain");
      await client.createSender(queue).sendMessages(range(30).map((body) => ({ body })));
      await arrived(queue, 30);
      const receiver = client.createReceiver(queue);
      const seen = [...(await receiver.peekMessages(20)), ...(await receiver.peekMessages(20))];
      assert.deepEqual(seen.map((message) => message.body), range(30));
      assert.equal(seen[0].lockToken, undefined);
      const [one] = await receiver.peekMessages(1, { fromSequenceNumber: seen[16].sequenceNumber });
      assert.equal(one.body, 16);
    }));

  test("a received and deleted message is removed at once", () =>
    withClient(async (client) => {
      const queue = take("plain");
      await client.createSender(queue).sendMessages(range(30).map((body) => ({ body })));
      const receiver = client.createReceiver(queue, { receiveMode: "receiveAndDelete" });
      assert.deepEqual((await received(receiver, 30)).map((message) => message.body), range(30));
      assert.deepEqual(await receiver.peekMessages(5), []);
    }));

  test("a subscriber's callbacks get every message once, several at a time", () =>
    withClient(async (client) => {
      const queue = take("plain");
      const receiver = client.createReceiver(queue);
      const found = [];
      const done = new Promise((resolve, reject) => {
        receiver.subscribe(
          {
            processMessage: async (message) => {
              found.push(message.body);
              if (found.length === 50) resolve();
            },
            processError: async (args) => reject(args.error),
          },
          { maxConcurrentCalls: 5 },
        );
      });
      await client.createSender(queue).sendMessages(range(50).map((body) => ({ body })));
      await done;
      await receiver.close();
      assert.deepEqual(found.sort((a, b) => a - b), range(50));
      // The client completes each message after the callback.
      await arrived(queue, 0);
    }));

  test("a receiver is an iterator", () =>
    withClient(async (client) => {
      const queue = take("plain");
      await client.createSender(queue).sendMessages(range(5).map((body) => ({ body })));
      const receiver = client.createReceiver(queue);
      const found = [];
      for await (const message of receiver.getMessageIterator()) {
        if (message === undefined) continue;
        found.push(message.body);
        await receiver.completeMessage(message);
        if (found.length === 5) break;
      }
      assert.deepEqual(found, range(5));
    }));

  test("a receiver of an empty queue times out, and later gets new messages", () =>
    withClient(async (client) => {
      const queue = take("plain");
      const receiver = client.createReceiver(queue);
      for (const _ of range(3)) assert.deepEqual(await receiver.receiveMessages(5, { maxWaitTimeInMs: 500 }), []);
      const [found] = await Promise.all([
        receiver.receiveMessages(1, { maxWaitTimeInMs: patience }),
        client.createSender(queue).sendMessages({ body: "came" }),
      ]);
      assert.deepEqual(found.map((message) => message.body), ["came"]);
      await receiver.completeMessage(found[0]);
    }));

  test("a renewed lock outlives its first expiry, and one that is not renewed is lost", () =>
    withClient(async (client) => {
      const queue = take("short");
      const receiver = client.createReceiver(queue, { maxAutoLockRenewalDurationInMs: 0 });
      await client.createSender(queue).sendMessages([{ body: "renewed" }, { body: "lost" }]);
      await arrived(queue, 2);
      const [renewed, lost] = await received(receiver, 2);
      for (const _ of range(3)) {
        await sleep(4000);
        const until = await receiver.renewMessageLock(renewed);
        assert.ok(until > new Date());
      }
      await receiver.completeMessage(renewed);
      await assert.rejects(receiver.completeMessage(lost), { code: "MessageLockLost" });
      await assert.rejects(receiver.renewMessageLock(lost), { code: "MessageLockLost" });
      const [again] = await received(receiver, 1);
      assert.deepEqual([again.body, again.deliveryCount], ["lost", 1]);
      await receiver.completeMessage(again);
    }));

  test("a subscriber's lock is renewed for it while it works", () =>
    withClient(async (client) => {
      const queue = take("short");
      const receiver = client.createReceiver(queue);
      let times = 0;
      const done = new Promise((resolve, reject) => {
        receiver.subscribe({
          processMessage: async () => {
            times += 1;
            await sleep(13000);
            resolve();
          },
          processError: async (args) => reject(args.error),
        });
      });
      await client.createSender(queue).sendMessages({ body: "long" });
      await done;
      await receiver.close();
      assert.equal(times, 1);
      assert.ok(await isEmpty(client.createReceiver(queue)));
    }));

  test("a message delivered too often is dead-lettered", () =>
    withClient(async (client) => {
      const queue = take("twice");
      const receiver = client.createReceiver(queue);
      await client.createSender(queue).sendMessages({ body: "poison" });
      for (const count of range(2)) {
        const [message] = await received(receiver, 1);
        assert.equal(message.deliveryCount, count);
        await receiver.abandonMessage(message);
      }
      const dead = client.createReceiver(queue, { subQueueType: "deadLetter" });
      const [letter] = await received(dead, 1);
      assert.equal(letter.deadLetterReason, "MaxDeliveryCountExceeded");
    }));
});
