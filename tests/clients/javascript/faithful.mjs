// What the service does and one would not expect.

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { arrived, completed, received, take, withClient } from "./stage.mjs";

const own = { text: "ö", number: 5 };

describe("as in the service", { concurrency: true }, () => {
  test("header fields, annotations and a footer before the body come back", () =>
    withClient(async (client) => {
      const queue = take("plain");
      const sent = {
        body: "body",
        bodyType: "data",
        header: { durable: true, priority: 7, firstAcquirer: true },
        messageAnnotations: own,
        deliveryAnnotations: own,
        footer: own,
      };
      await client.createSender(queue).sendMessages(sent);
      const [got] = await received(client.createReceiver(queue), 1);
      assert.equal(got.body, "body");
      const raw = got._rawAmqpMessage;
      assert.deepEqual([raw.header.durable, raw.header.priority, raw.header.firstAcquirer], [true, 7, true]);
      for (const found of [raw.messageAnnotations, raw.deliveryAnnotations, raw.footer])
        assert.deepEqual([found.text, found.number], ["ö", 5]);
      assert.equal(got.deliveryCount, 0);
      assert.equal(got.state, "active");
    }));

  test("an empty session is a session like any other", () =>
    withClient(async (client) => {
      const queue = take("sessions");
      await client.createSender(queue).sendMessages([{ body: 1, sessionId: "" }, { body: 2, sessionId: "s" }]);
      await arrived(queue, 2);
      // This client cannot hold it: it takes an empty session for none.
      const peeked = await client.createReceiver(queue).peekMessages(5);
      assert.deepEqual(peeked.map((message) => [message.body, message.sessionId]), [[1, ""], [2, "s"]]);
      const named = await client.acceptSession(queue, "s");
      assert.deepEqual(await completed(named, 1), [2]);
    }));

  test("attempts that end in a dead letter do not count, and a dead letter stays one", () =>
    withClient(
      async (client) => {
        const queue = take("plain");
        await client.createSender(queue).sendMessages({ body: "x" });
        const receiver = client.createReceiver(queue);
        const [message] = await received(receiver, 1);
        await receiver.deadLetterMessage(message, { deadLetterReason: "why" });
        const dead = client.createReceiver(queue, { subQueueType: "deadLetter" });
        let [letter] = await received(dead, 1);
        assert.equal(letter.deliveryCount, 0);
        await dead.abandonMessage(letter);
        [letter] = await received(dead, 1);
        assert.deepEqual([letter.deliveryCount, letter.deadLetterReason], [0, "why"]);
        await assert.rejects(dead.deadLetterMessage(letter), /cannot be dead-lettered again/);
      },
      undefined,
      { retryOptions: { maxRetries: 0 } },
    ));

  test("a message that is received and deleted has no lock", () =>
    withClient(async (client) => {
      const queue = take("plain");
      await client.createSender(queue).sendMessages([{ body: 1 }, { body: 2 }]);
      const found = await received(client.createReceiver(queue, { receiveMode: "receiveAndDelete" }), 2);
      for (const message of found) {
        assert.equal(message.lockToken, undefined);
        assert.equal(message._rawAmqpMessage.deliveryAnnotations?.["x-opt-lock-token"], undefined);
      }
    }));

  test("a scheduled message is received as scheduled", () =>
    withClient(async (client) => {
      const queue = take("plain");
      const sender = client.createSender(queue);
      const soon = new Date(Math.ceil(Date.now() / 1000) * 1000 + 1000);
      await sender.scheduleMessages({ body: "later" }, soon);
      const past = new Date(Date.UTC(2020, 1, 2));
      await sender.sendMessages({ body: "at once", scheduledEnqueueTimeUtc: past });
      const [first, second] = await received(client.createReceiver(queue), 2);
      assert.deepEqual([first.body, first.state, first.scheduledEnqueueTimeUtc], ["at once", "active", past]);
      assert.deepEqual([second.body, second.state, second.scheduledEnqueueTimeUtc], ["later", "scheduled", soon]);
    }));

  test("rules are listed by name", () =>
    withClient(async (client) => {
      const topic = take("topic");
      const manager = client.createRuleManager(topic, "all");
      for (const name of ["zebra", "apple"]) await manager.createRule(name, { sqlExpression: "1=1" });
      const names = [];
      for await (const rule of manager.listRules()) names.push(rule.name);
      assert.deepEqual(names, ["$Default", "apple", "zebra"]);
    }));
});
