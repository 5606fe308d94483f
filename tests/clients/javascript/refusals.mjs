// The errors of this client for refused operations.

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { ServiceBusClient } from "@azure/service-bus";

import { connection, patience, take, tokenString, withClient } from "./stage.mjs";

const once = { retryOptions: { maxRetries: 0 } };

const send = (queue, text, message = { body: "x" }) =>
  withClient((client) => client.createSender(queue).sendMessages(message), text, once);
const receive = (queue, text) =>
  withClient((client) => client.createReceiver(queue).receiveMessages(1, { maxWaitTimeInMs: patience }), text, once);

describe("refusals", { concurrency: true }, () => {
  test("a missing entity", async () => {
    await assert.rejects(send("nowhere"), { code: "MessagingEntityNotFound", message: /'sb:\/\/[^/]+\/nowhere' could not be found/ });
    await assert.rejects(receive("nowhere"), { code: "MessagingEntityNotFound" });
  });

  test("a wrong key", async () => {
    const wrong = connection.replace(/SharedAccessKey=[^;]+/, "SharedAccessKey=wrong");
    await assert.rejects(send(take("plain"), wrong), /InvalidSignature/);
  });

  test("a missing right", async () => {
    const queue = take("plain");
    await assert.rejects(send(queue, process.env.ONLY_LISTENS), { code: "UnauthorizedAccess", message: /'Send' claim/ });
    await assert.rejects(receive(queue, process.env.ONLY_SENDS), {
      code: "UnauthorizedAccess",
      message: /'Listen' claim/,
    });
    await send(queue, process.env.ONLY_SENDS);
    assert.equal((await receive(queue, process.env.ONLY_LISTENS)).length, 1);
  });

  test("an expired token", async () => {
    await assert.rejects(send(take("plain"), tokenString(-1)), /ExpiredToken/);
  });

  test("a token that expires while its link waits", async () => {
    const client = new ServiceBusClient(tokenString(8), once);
    const receiver = client.createReceiver(take("plain"));
    const error = await new Promise((resolve) => {
      receiver.subscribe({ processMessage: async () => {}, processError: async (args) => resolve(args.error) });
    });
    assert.match(error.message, /ExpiredToken|token/i);
    await client.close();
  });

  test("an entity that is disabled", async () => {
    await assert.rejects(send(take("disabled")), { code: "MessagingEntityDisabled" });
    await assert.rejects(send(take("send-disabled")), { code: "MessagingEntityDisabled" });
    await assert.rejects(receive(take("receive-disabled")), { code: "MessagingEntityDisabled" });
  });

  test("a message that is too large", async () => {
    const large = { body: Buffer.alloc(256 * 1024 + 1) };
    await assert.rejects(send(take("plain"), undefined, large), { code: "MessageSizeExceeded" });
  });

  test("a message without the session that its queue requires", async () => {
    await assert.rejects(send(take("sessions")), /SessionId was not set/);
    await assert.rejects(receive(take("sessions")), /requires sessions/);
  });
});
