// Topics, subscriptions and their rules, over AMQP and by the administration client.

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { ServiceBusAdministrationClient } from "@azure/service-bus";

import { arrived, completed, isEmpty, received, take, withClient } from "./stage.mjs";

const priced = (price) => ({ body: price, applicationProperties: { price } });

describe("topics", { concurrency: true }, () => {
  test("each subscription gets the messages its rules select", () =>
    withClient(async (client) => {
      const topic = take("topic");
      const paint = { body: "red", subject: "paint", applicationProperties: { colour: "red" } };
      await client.createSender(topic).sendMessages([priced(50), priced(150), paint]);
      assert.deepEqual(await completed(client.createReceiver(topic, "all"), 3), [50, 150, "red"]);
      const [dear] = await received(client.createReceiver(topic, "dear"), 1);
      assert.deepEqual([dear.body, dear.applicationProperties.urgent], [150, true]);
      assert.deepEqual(await completed(client.createReceiver(topic, "red"), 1), ["red"]);
    }));

  test("rules are added, listed and removed over AMQP", () =>
    withClient(async (client) => {
      const topic = take("topic");
      const rules = client.createRuleManager(topic, "all");
      await rules.createRule("cheap", { sqlExpression: "price < 10" }, { sqlExpression: "SET cheap = 1" });
      await rules.createRule("named", { correlationId: "me", applicationProperties: { colour: "red" } });
      await rules.deleteRule("$Default");
      const found = [];
      for await (const rule of rules.listRules()) found.push(rule);
      assert.deepEqual(found.map((rule) => rule.name).sort(), ["cheap", "named"]);
      const cheap = found.find((rule) => rule.name === "cheap");
      assert.equal(cheap.filter.sqlExpression, "price < 10");
      assert.equal(cheap.action.sqlExpression, "SET cheap = 1");
      const named = found.find((rule) => rule.name === "named");
      assert.equal(named.filter.correlationId, "me");
      assert.deepEqual(named.filter.applicationProperties, { colour: "red" });
      await assert.rejects(rules.deleteRule("none"), { code: "MessagingEntityNotFound" });
      await client.createSender(topic).sendMessages([priced(50), priced(5)]);
      const receiver = client.createReceiver(topic, "all");
      const [message] = await received(receiver, 1);
      assert.deepEqual([message.body, message.applicationProperties.cheap], [5, 1]);
      await receiver.completeMessage(message);
      assert.ok(await isEmpty(receiver));
    }));

  test("the administration client creates, counts and deletes entities", async () => {
    const admin = new ServiceBusAdministrationClient(process.env.ADMINISTRATION);
    const name = "made-by-javascript";
    const queue = await admin.createQueue(name, { requiresDuplicateDetection: true });
    assert.equal(queue.duplicateDetectionHistoryTimeWindow, "PT10M");
    await withClient(async (client) => {
      const sender = client.createSender(name);
      for (const messageId of ["a", "b", "a"]) await sender.sendMessages({ body: messageId, messageId });
      await arrived(name, 2);
      const counts = await admin.getQueueRuntimeProperties(name);
      assert.equal(counts.activeMessageCount, 2);
    });
    await admin.deleteQueue(name);
    assert.equal(await admin.queueExists(name), false);
  });
});
