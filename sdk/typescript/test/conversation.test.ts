// The conversation with the real server: what is offered, by whom, and through losses of the connection.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Callbacks } from "../src/callbacks.js";
import { Transport } from "../src/transport.js";
import { failureOf, useServer } from "./server.js";

const at = useServer();

test("one client at a time answers for a name, also after the server was killed", async () => {
  const sandbox = await at.client.sandboxes.create();
  const transport = new Transport({ url: at.server.url });
  const run = (): string => "done";
  const one = new Callbacks(transport, sandbox.id);
  const two = new Callbacks(transport, sandbox.id);
  await one.offer({ tools: { same: { run }, first: { run } } });
  await two.offer({ tools: { other: { run } } });
  assert.equal((await failureOf(two.offer({ tools: { same: { run } } }))).code, "callback-exists");
  const nobody = new Callbacks(transport, "nobody");
  assert.equal((await failureOf(nobody.offer({ tools: { x: { run } } }))).code, "sandbox-not-found");
  assert.equal(
    (await failureOf(new Callbacks(transport, sandbox.id).offer({ tools: { "not a name": { run } } }))).code,
    "invalid-name",
  );
  await two.offer({ tools: { another: { run } } });
  // Through a crash the offer stands, and what was given up is free for others.
  await at.server.end("SIGKILL");
  await at.server.serve();
  await one.offer({ tools: { later: { run } } });
  const three = new Callbacks(transport, sandbox.id);
  assert.equal((await failureOf(three.offer({ tools: { first: { run } } }))).code, "callback-exists");
  await one.close();
  await three.offer({ tools: { first: { run } } });
  await three.close();
  await two.close();
  await sandbox.destroy();
  transport.close();
});
