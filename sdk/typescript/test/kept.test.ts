// What a server keeps beside sandboxes: snapshots, secrets, keys, tenants, webhooks, and its records.
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  Belljar,
  PermissionDeniedError,
  PolicyDeniedError,
  PolicyNotFoundError,
  SecretNotFoundError,
  SnapshotNotFoundError,
  UnauthenticatedError,
} from "belljar";
import { failureOf, useServer } from "./server.js";

const at = useServer();

test("files are kept, and each sandbox made from them is its own", async () => {
  await using client = new Belljar(at.server.socket);
  await using first = await client.sandboxes.create({ limits: { memory: "128MiB" }, files: { "work.txt": "kept" } });
  const snapshot = await first.snapshot({ name: "morning", labels: { day: "one" } });
  assert.equal(snapshot.sandboxId, first.id);
  assert.match(snapshot.digest, /^sha256:/);
  await first.files.write("work.txt", "changed");
  await using second = await client.snapshots.restore("morning", { files: { "more.txt": "more" } });
  await using third = await client.snapshots.restore(snapshot.snapshotId);
  await third.files.write("work.txt", "of the third");
  assert.equal((await second.run("cat work.txt more.txt")).stdout, "keptmore");
  assert.equal(second.info.limits?.memoryBytes, 128 << 20);
  assert.equal((await client.snapshots.get("morning")).snapshotId, snapshot.snapshotId);
  const listed = async (options: object): Promise<string[]> =>
    (await client.snapshots.list(options)).map(({ snapshotId }) => snapshotId);
  assert.deepEqual(await listed({ labels: { day: "one" }, sandbox: first.id }), [snapshot.snapshotId]);
  assert.deepEqual(await listed({ labels: { day: "two" } }), []);
  const part = await client.snapshots.create(first.id, { paths: ["/home/user"] });
  assert.deepEqual(part.paths, ["/home/user"]);
  await client.snapshots.remove("morning");
  assert.ok((await failureOf(client.snapshots.restore("morning"))) instanceof SnapshotNotFoundError);
  assert.equal((await second.run("cat work.txt")).stdout, "kept");
});

test("what is restored runs under the policy of its snapshot", async () => {
  const policy = "rules: [{name: no-id, condition: {field: command, operator: contains, value: id}, action: deny}]\n";
  await using client = new Belljar(at.server.socket);
  await using first = await client.sandboxes.create({ policy });
  const snapshot = await first.snapshot();
  assert.equal(snapshot.policy?.digest, first.info.policy?.digest);
  await using second = await client.snapshots.restore(snapshot.snapshotId);
  assert.ok((await failureOf(second.run("id"))) instanceof PolicyDeniedError);
  assert.equal((await second.run("echo yes")).stdout, "yes\n");
  await client.snapshots.remove(snapshot.snapshotId);
});

test("secrets go in, and only their names come out", async () => {
  await using client = new Belljar(at.server.socket);
  const kept = await client.secrets.set("token", "a-value-of-the-host");
  assert.equal(kept.name, "token");
  const again = await client.secrets.set("token", "another-value");
  assert.equal(again.createdAt, kept.createdAt);
  const listed = await client.secrets.list();
  assert.deepEqual(
    listed.map(({ name }) => name),
    ["token"],
  );
  assert.ok(!JSON.stringify([kept, again, listed]).includes("value"));
  await client.secrets.remove("token");
  assert.deepEqual(await client.secrets.list(), []);
  assert.ok((await failureOf(client.secrets.remove("token"))) instanceof SecretNotFoundError);
});

test("tenants have quotas and keys; a key is its tenant's, and none after it was revoked", async () => {
  await using client = new Belljar(at.server.socket);
  const made = await client.tenants.create("blue", { quotas: { sandboxes: 1 } });
  assert.equal(made.quotas?.sandboxes, 1);
  const key = await client.keys.create("agent", { tenant: "blue", expires: 3600 });
  assert.ok(key.secret.length > 20);
  assert.deepEqual(
    (await client.keys.list({ tenant: "blue" })).map(({ keyId }) => keyId),
    [key.keyId],
  );
  {
    await using blue = new Belljar({ url: at.server.url, apiKey: key.secret });
    assert.equal((await blue.caller()).tenant, "blue");
    assert.ok((await failureOf(blue.tenants.list())) instanceof PermissionDeniedError);
    {
      await using only = await blue.sandboxes.create();
      assert.equal((await failureOf(blue.sandboxes.create())).code, "quota-exceeded");
      assert.equal((await client.tenants.get("blue")).usage?.sandboxes, 1);
      assert.equal((await client.tenants.setQuotas("blue", { sandboxes: 2 })).quotas?.sandboxes, 2);
      await using _second = await blue.sandboxes.create();
      const { token } = await only.issueToken({ expires: 60 });
      await using visitor = new Belljar({ url: at.server.url, apiKey: token });
      assert.equal((await (await visitor.sandboxes.get(only.id)).run("echo in")).stdout, "in\n");
      assert.ok((await failureOf(visitor.sandboxes.create())) instanceof PermissionDeniedError);
    }
    await client.policies.put("theirs", "name: theirs\nversion: '1.0'\n", { tenant: "blue" });
    assert.equal((await blue.policies.get("theirs")).tenant, "blue");
    assert.ok((await failureOf(client.policies.get("theirs"))) instanceof PolicyNotFoundError);
    await client.policies.remove("theirs", { tenant: "blue" });
    assert.ok((await client.keys.revoke(key.keyId)).revokedAt !== null);
    assert.ok((await failureOf(blue.caller())) instanceof UnauthenticatedError);
  }
  await client.tenants.remove("blue");
  assert.ok(!(await client.tenants.list()).some(({ tenant }) => tenant === "blue"));
});

test("webhooks are kept and removed", async () => {
  await using client = new Belljar(at.server.socket);
  const kinds = ["sandbox_created" as const];
  const made = await client.webhooks.create("http://127.0.0.1:9/hook", { secret: "signs-what-is-sent", kinds });
  assert.deepEqual(made.kinds, kinds);
  assert.deepEqual(
    (await client.webhooks.list()).map(({ webhookId }) => webhookId),
    [made.webhookId],
  );
  await client.webhooks.remove(made.webhookId);
  assert.deepEqual(await client.webhooks.list(), []);
});

test("what was done is on record, as it is done, too", async () => {
  await using client = new Belljar(at.server.socket);
  await using sandbox = await client.sandboxes.create();
  const end = new AbortController();
  const followed = (async (): Promise<string> => {
    for await (const record of client.audit({ sandbox: sandbox.id, follow: true, signal: end.signal }))
      if (record.action !== "create-sandbox") return record.action;
    return "";
  })();
  await sandbox.run("true");
  const action = await followed;
  const records = [];
  for await (const record of client.audit({ sandbox: sandbox.id, since: new Date(0) })) records.push(record);
  assert.ok(records.length >= 2);
  assert.ok(records.some((record) => record.action === action && record.outcome === "ok"));
  const last = [];
  for await (const record of client.audit({ last: 1, outcome: "ok" })) last.push(record);
  assert.equal(last.length, 1);
});

test("the server tells of backends, leaks, rules and what it learned", async () => {
  await using client = new Belljar(at.server.socket);
  const [native] = await client.probe({ backend: "native" });
  assert.equal(native?.backend, "native");
  assert.ok(Array.isArray((await client.findLeaks()).found));
  for await (const step of client.fetchTemplate("host")) assert.fail(`nothing is fetched for it: ${step.part}`);
  await using sandbox = await client.sandboxes.create({ policy: { record: true } });
  assert.equal((await sandbox.explain()).chosenBackend, sandbox.info.backend);
  await sandbox.run(["echo", "learned"]);
  assert.match((await client.policies.learn(sandbox.id)).document, /name:/);
});
