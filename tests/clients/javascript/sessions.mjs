// Sessions.

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { arrived, completed, range, received, sleep, take, withClient } from "./stage.mjs";

const of = (sessionId, ...bodies) => bodies.map((body) => ({ body, sessionId }));

describe("sessions", { concurrency: true }, () => {
  test("a session is received in order by the one that holds it", () =>
    withClient(async (client) => {
      const queue = take("sessions");
      await client.createSender(queue).sendMessages([...of("a", 1), ...of("b", "other"), ...of("a", 2, 3)]);
      const holder = await client.acceptSession(queue, "a");
      await assert.rejects(
        withClient((other) => other.acceptSession(queue, "a"), undefined, { retryOptions: { maxRetries: 0 } }),
        { code: "SessionCannotBeLocked" },
      );
      const next = await client.acceptNextSession(queue);
      assert.equal(next.sessionId, "b");
      assert.deepEqual(await completed(next, 1), ["other"]);
      const messages = await received(holder, 3);
      assert.deepEqual(messages.map((message) => [message.body, message.sessionId]), [[1, "a"], [2, "a"], [3, "a"]]);
      await holder.completeMessage(messages[0]);
      await holder.deferMessage(messages[1]);
      await holder.abandonMessage(messages[2]);
      const [deferred] = await holder.receiveDeferredMessages(messages[1].sequenceNumber);
      await holder.completeMessage(deferred);
      const [again] = await received(holder, 1);
      assert.deepEqual([again.body, again.deliveryCount], [3, 1]);
      await holder.completeMessage(again);
      assert.deepEqual(await holder.peekMessages(5), []);
    }));

  test("the state of a session stays with it", () =>
    withClient(async (client) => {
      const queue = take("sessions");
      const first = await client.acceptSession(queue, "a");
      assert.equal(await first.getSessionState(), null);
      await first.setSessionState({ step: 1 });
      await first.close();
      const second = await client.acceptSession(queue, "a");
      assert.deepEqual(await second.getSessionState(), { step: 1 });
      await second.setSessionState(null);
      assert.equal(await second.getSessionState(), null);
    }));

  test("a session that is renewed outlives its first lock", () =>
    withClient(async (client) => {
      const queue = take("short-sessions");
      await client.createSender(queue).sendMessages(of("a", 1));
      await arrived(queue, 1);
      const holder = await client.acceptSession(queue, "a", { maxAutoLockRenewalDurationInMs: 0 });
      const before = holder.sessionLockedUntilUtc;
      const [message] = await received(holder, 1);
      for (const _ of range(3)) {
        await sleep(4000);
        assert.ok((await holder.renewSessionLock()) > before);
      }
      await holder.completeMessage(message);
    }));

  test("a subscriber's session is renewed for it", () =>
    withClient(async (client) => {
      const queue = take("short-sessions");
      const holder = await client.acceptSession(queue, "a");
      const found = [];
      const done = new Promise((resolve, reject) => {
        holder.subscribe({
          processMessage: async (message) => {
            found.push(message.body);
            await sleep(6000);
            if (found.length === 2) resolve();
          },
          processError: async (args) => reject(args.error),
        });
      });
      await client.createSender(queue).sendMessages(of("a", 1, 2));
      await done;
      assert.deepEqual(found, [1, 2]);
    }));

  test("a session with an expired lock is lost and free for another", () =>
    withClient(async (client) => {
      const queue = take("short-sessions");
      await client.createSender(queue).sendMessages(of("a", 1));
      await arrived(queue, 1);
      const holder = await client.acceptSession(queue, "a", { maxAutoLockRenewalDurationInMs: 0 });
      const [message] = await received(holder, 1);
      await sleep(11500);
      await assert.rejects(holder.completeMessage(message), { code: "SessionLockLost" });
      const another = await client.acceptSession(queue, "a");
      const [again] = await received(another, 1);
      assert.deepEqual([again.body, again.deliveryCount], [1, 1]);
      await another.completeMessage(again);
    }));

  test("a client times out without a next session", async () => {
    const options = { retryOptions: { maxRetries: 0, timeoutInMs: 1500 } };
    await assert.rejects(withClient((client) => client.acceptNextSession(take("sessions")), undefined, options), {
      code: "ServiceTimeout",
    });
  });
});
