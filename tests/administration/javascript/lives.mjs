// Each kind of entity from creation to deletion, with the administration client for JavaScript.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { ServiceBusAdministrationClient } from "@azure/service-bus";

const { ADMINISTRATION, BROKER, TOKEN } = process.env;
const admin = new ServiceBusAdministrationClient(ADMINISTRATION);

// The service answers a GET of a missing entity with an empty feed.
const nothing = { code: "MessageEntityNotFoundError", statusCode: 200 };
const missing = { code: "MessageEntityNotFoundError", statusCode: 404 };
const taken = { code: "MessageEntityAlreadyExistsError", statusCode: 409, message: /already exists/ };

/** Send a message over HTTP; headers are its application properties. */
async function send(entity, messageId, headers = {}) {
  const allHeaders = { Authorization: TOKEN, BrokerProperties: JSON.stringify({ MessageId: messageId }), ...headers };
  const response = await fetch(`${BROKER}/${entity}/messages`, { method: "POST", headers: allHeaders, body: "x" });
  assert.equal(response.status, 201, await response.text());
}

/** Poll until the condition holds. A single query waits at most two seconds for the pipeline. */
async function until(isSo) {
  const deadline = Date.now() + 60_000;
  while (!(await isSo())) {
    assert.ok(Date.now() < deadline, `waited for: ${isSo}`);
    await sleep(50);
  }
}

async function names(listed) {
  const found = [];
  for await (const each of listed) found.push(each.name);
  return found;
}

function assertHas(found, wanted) {
  assert.deepEqual(Object.fromEntries(Object.keys(wanted).map((key) => [key, found[key]])), wanted);
}

describe("lives", { concurrency: true }, () => {
  test("a queue", async () => {
    const name = "js/a-queue";
    const wanted = {
      requiresDuplicateDetection: true,
      duplicateDetectionHistoryTimeWindow: "PT1H",
      lockDuration: "PT13S",
      userMetadata: "größer & <schöner>",
    };
    assert.equal(await admin.queueExists(name), false);
    assertHas(await admin.createQueue(name, wanted), { name, ...wanted });
    assert.equal(await admin.queueExists(name), true);
    await assert.rejects(admin.createQueue(name), taken);
    const found = await admin.getQueue(name);
    assertHas(found, wanted);
    assert.ok((await names(admin.listQueues())).includes(name));
    const changes = { duplicateDetectionHistoryTimeWindow: "P2D", maxDeliveryCount: 7 };
    await admin.updateQueue({ ...found, ...changes });
    assertHas(await admin.getQueue(name), { ...wanted, ...changes });
    for (const id of ["a", "b", "a", "c"]) await send(name, id);
    await until(async () => (await admin.getQueueRuntimeProperties(name)).activeMessageCount === 3);
    for await (const each of admin.listQueuesRuntimeProperties())
      if (each.name === name) assertHas(each, { activeMessageCount: 3, totalMessageCount: 3 });
    await admin.deleteQueue(name);
    assert.equal(await admin.queueExists(name), false);
    await assert.rejects(admin.getQueue(name), nothing);
    await assert.rejects(admin.updateQueue(found), missing);
    await assert.rejects(admin.deleteQueue(name), missing);
  });

  test("a topic", async () => {
    const name = "js/a-topic";
    const wanted = { requiresDuplicateDetection: true, duplicateDetectionHistoryTimeWindow: "PT1H", userMetadata: "x" };
    assert.equal(await admin.topicExists(name), false);
    assertHas(await admin.createTopic(name, wanted), { name, ...wanted });
    assert.equal(await admin.topicExists(name), true);
    await assert.rejects(admin.createTopic(name), taken);
    const found = await admin.getTopic(name);
    assertHas(found, wanted);
    assert.ok((await names(admin.listTopics())).includes(name));
    const changes = { duplicateDetectionHistoryTimeWindow: "P2D", maxSizeInMegabytes: 2048 };
    await admin.updateTopic({ ...found, ...changes });
    assertHas(await admin.getTopic(name), { ...wanted, ...changes });
    await admin.createSubscription(name, "all");
    await send(name, "a");
    await until(async () => (await admin.getTopicRuntimeProperties(name)).sizeInBytes > 0);
    assert.equal((await admin.getTopicRuntimeProperties(name)).subscriptionCount, 1);
    await admin.deleteTopic(name);
    assert.equal(await admin.topicExists(name), false);
    await assert.rejects(admin.getTopic(name), nothing);
    await assert.rejects(admin.updateTopic(found), missing);
    await assert.rejects(admin.deleteTopic(name), missing);
  });

  test("a subscription", async () => {
    const [topic, name] = ["js/subscribed", "one"];
    await admin.createTopic(topic);
    const wanted = { lockDuration: "PT13S", maxDeliveryCount: 3, deadLetteringOnMessageExpiration: true };
    assert.equal(await admin.subscriptionExists(topic, name), false);
    assertHas(await admin.createSubscription(topic, name, wanted), { subscriptionName: name, ...wanted });
    assert.equal(await admin.subscriptionExists(topic, name), true);
    await assert.rejects(admin.createSubscription(topic, name), taken);
    const found = await admin.getSubscription(topic, name);
    assertHas(found, wanted);
    const listed = [];
    for await (const each of admin.listSubscriptions(topic)) listed.push(each.subscriptionName);
    assert.deepEqual(listed, [name]);
    await admin.updateSubscription({ ...found, maxDeliveryCount: 9 });
    assertHas(await admin.getSubscription(topic, name), { ...wanted, maxDeliveryCount: 9 });
    await send(topic, "a");
    await send(topic, "b");
    const count = async () => (await admin.getSubscriptionRuntimeProperties(topic, name)).activeMessageCount;
    await until(async () => (await count()) === 2);
    await admin.deleteSubscription(topic, name);
    assert.equal(await admin.subscriptionExists(topic, name), false);
    await assert.rejects(admin.getSubscription(topic, name), missing);
    await assert.rejects(admin.updateSubscription(found), missing);
    await assert.rejects(admin.deleteSubscription(topic, name), missing);
  });

  test("a rule", async () => {
    const [topic, subscription, name] = ["js/ruled", "some", "dear"];
    await admin.createTopic(topic);
    await admin.createSubscription(topic, subscription);
    await admin.deleteRule(topic, subscription, "$Default");
    const at = [topic, subscription, name];
    assert.equal(await admin.ruleExists(...at), false);
    await admin.createRule(...at, { sqlExpression: "price > 10" }, { sqlExpression: "SET dear = 1" });
    assert.equal(await admin.ruleExists(...at), true);
    await assert.rejects(admin.createRule(...at, { sqlExpression: "1=1" }), taken);
    const found = await admin.getRule(...at);
    assert.deepEqual([found.filter.sqlExpression, found.action.sqlExpression], ["price > 10", "SET dear = 1"]);
    assert.deepEqual(await names(admin.listRules(topic, subscription)), [name]);
    await admin.updateRule(topic, subscription, { ...found, filter: { sqlExpression: "price > 100" } });
    assert.equal((await admin.getRule(...at)).filter.sqlExpression, "price > 100");
    // With the old rule, both messages would arrive.
    for (const price of ["50", "150"]) await send(topic, price, { price });
    const count = async () => (await admin.getSubscriptionRuntimeProperties(topic, subscription)).activeMessageCount;
    await until(async () => (await count()) > 0);
    assert.equal(await count(), 1);
    await admin.deleteRule(...at);
    assert.equal(await admin.ruleExists(...at), false);
    await assert.rejects(admin.getRule(...at), missing);
    await assert.rejects(admin.updateRule(topic, subscription, found), missing);
    await assert.rejects(admin.deleteRule(...at), missing);
  });
});
