// Violations of a namespace's rules, and the errors that this client raises. The cases are in cases.json.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { before, test } from "node:test";

import { ServiceBusAdministrationClient } from "@azure/service-bus";

const cases = JSON.parse(readFileSync("cases.json", "utf8"));
const admins = Object.fromEntries(
  Object.entries(JSON.parse(process.env.BROKERS)).map(([tier, text]) => [tier, new ServiceBusAdministrationClient(text)]),
);
const topic = "js-cases";

const does = {
  Queue: {
    create: (admin, name, given) => admin.createQueue(name, given),
    find: (admin, name) => admin.getQueue(name),
    update: (admin, queue) => admin.updateQueue(queue),
  },
  Topic: {
    create: (admin, name, given) => admin.createTopic(name, given),
    find: (admin, name) => admin.getTopic(name),
    update: (admin, topic) => admin.updateTopic(topic),
  },
  Subscription: {
    create: (admin, name, given) => admin.createSubscription(topic, name, given),
    find: (admin, name) => admin.getSubscription(topic, name),
    update: (admin, subscription) => admin.updateSubscription(subscription),
  },
};

before(() => admins.Standard.createTopic(topic));

for (const [at, { name, kind, tier, given, before, text }] of cases.entries()) {
  test(name, async () => {
    const { create, find, update } = does[kind];
    const admin = admins[tier];
    const entity = `js-case-${at}`;
    const refused = (error) => {
      assert.deepEqual([error.statusCode, error.code], [400, "ServiceError"]);
      assert.ok(error.message.includes(text), error.message);
      return true;
    };
    if (before === null) {
      await assert.rejects(create(admin, entity, given), refused);
      await assert.rejects(find(admin, entity), { code: "MessageEntityNotFoundError" });
    } else {
      await create(admin, entity, before);
      const made = await find(admin, entity);
      await assert.rejects(update(admin, { ...made, ...given }), refused);
      const left = await find(admin, entity);
      for (const property of Object.keys(given)) assert.equal(left[property], made[property]);
    }
  });
}
