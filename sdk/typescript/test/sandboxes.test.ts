import assert from "node:assert/strict";
import { mkdtemp, realpath, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import {
  AbortedError,
  Belljar,
  BelljarError,
  ConflictingOptionsError,
  InvalidArgumentError,
  Sandbox,
  SandboxExistsError,
  SandboxNotFoundError,
  ServerUnreachableError,
  TimedOutError,
  toWire,
} from "belljar";
import { BINARY, cleanUp, failureOf, useServer } from "./server.js";

const at = useServer();

test("a sandbox is made, used, found, listed and gone", async () => {
  const { client } = at;
  let id = "";
  {
    await using sandbox = await client.sandboxes.create({
      name: "web",
      labels: { my_team: "blue" },
      limits: { memory: "256MiB", cpus: 0.5 },
    });
    id = sandbox.id;
    assert.equal(sandbox.name, "web");
    assert.equal(sandbox.info.state, "ready");
    assert.deepEqual(sandbox.info.labels, { my_team: "blue" });
    assert.equal(sandbox.info.limits?.memoryBytes, 256 * 1024 * 1024);
    assert.equal(sandbox.info.limits?.milliCpus, 500);
    assert.equal(sandbox.info.isolation?.networkMode, "none");
    assert.equal((await client.sandboxes.get("web")).id, id);
    assert.equal((await client.sandboxes.getOrCreate("web")).id, id);
    assert.deepEqual(
      (await client.sandboxes.list({ labels: { my_team: "blue" } })).map((found) => found.id),
      [id],
    );
    assert.deepEqual(await client.sandboxes.list({ labels: { my_team: "red" } }), []);
    const error = await failureOf(client.sandboxes.create({ name: "web" }));
    assert.ok(error instanceof SandboxExistsError);
  }
  assert.equal((await client.sandboxes.get(id)).info.state, "destroyed");
  const error = await failureOf(client.sandboxes.get("web"));
  assert.ok(error instanceof SandboxNotFoundError && error instanceof BelljarError);
  assert.equal(error.code, "sandbox-not-found");
  assert.match(error.remedy ?? "", /list/);
  assert.match(error.docs ?? "", /sandbox-not-found/);
  assert.notEqual(error.requestId, undefined);
});

const NO_RUNC = process.getuid?.() !== 0 && "runc needs root";

test("the wall and what runs in it are chosen", { skip: NO_RUNC }, async () => {
  await using sandbox = await at.client.sandboxes.create({ backend: "oci", runtime: "runc" });
  assert.deepEqual([sandbox.info.isolation?.backend, sandbox.info.isolation?.runtime], ["oci", "runc"]);
  assert.equal((await sandbox.run("id -u")).stdout, "1000\n");
});

test("records on the wire have the names of --json", async () => {
  await using sandbox = await at.client.sandboxes.create({ metadata: { some_key: "x" } });
  const wire = toWire(sandbox.info) as Record<string, unknown>;
  assert.equal(wire["sandbox_id"], sandbox.id);
  assert.deepEqual(wire["metadata"], { some_key: "x" });
});

test("commands end with a result, whatever their end", async () => {
  await using sandbox = await at.client.sandboxes.create({ env: { GREETING: "hello" }, timeout: 30 });
  const good = await sandbox.run("echo $GREETING $NAME; echo oops >&2; exit 3", { env: { NAME: "you" } });
  assert.equal(good.exitCode, 3);
  assert.equal(good.stdout, "hello you\n");
  assert.equal(good.stderr, "oops\n");
  assert.equal(good.reason, "exited");
  assert.ok((good.usage?.peakMemoryBytes ?? 0) > 0);
  const words = await sandbox.run(["printf", "%s|", "a b", "$HOME"], { cwd: "/tmp" });
  assert.equal(words.stdout, "a b|$HOME|");
  const input = await sandbox.run(["cat"], { stdin: "from here" });
  assert.equal(input.stdout, "from here");
  const late = await sandbox.run("sleep 20", { timeout: 0.2 });
  assert.equal(late.timedOut, true);
  assert.equal(late.exitCode, 124);
  const python = await sandbox.runPython("print(6 * 7)");
  assert.equal(python.stdout, "42\n");
  const left = await sandbox.run("echo result > /output/a.txt", { artifacts: true });
  assert.deepEqual(
    left.artifacts.map(({ bytes }) => bytes),
    [7],
  );
});

test("aborting a command ends it, and out of time is told apart", async () => {
  await using sandbox = await at.client.sandboxes.create();
  const stop = new AbortController();
  const running = sandbox.run("echo on; sleep 50", { signal: stop.signal, timeout: 60 });
  const failure = failureOf(running);
  while ((await sandbox.processes({ status: ["running"] })).length === 0);
  stop.abort(new Error("no longer wanted"));
  const aborted = await failure;
  assert.ok(aborted instanceof AbortedError);
  assert.equal(aborted.name, "AbortError");
  assert.equal((aborted.cause as Error).message, "no longer wanted");
  const late = await failureOf(sandbox.run("sleep 50", { signal: AbortSignal.timeout(300) }));
  assert.ok(late instanceof TimedOutError);
  const statuses = (await sandbox.processes()).map((process) => process.info.status);
  assert.deepEqual(statuses, ["cancelled", "cancelled"]);
  assert.ok((await failureOf(sandbox.run("true", { signal: stop.signal }))) instanceof AbortedError);
});

test("pause, resume, extend, explain", async () => {
  await using sandbox = await at.client.sandboxes.create();
  assert.equal((await sandbox.pause()).state, "paused");
  assert.equal((await sandbox.resume()).state, "ready");
  assert.equal((await sandbox.extend({ idleTimeout: 77 })).idleTimeoutSecs, 77);
  const explanation = await at.client.sandboxes.explain({ template: "host" });
  assert.equal(explanation.networkMode, "none");
  assert.ok(explanation.rules.length > 0);
});

test("events come as things happen, and from before", async () => {
  await using sandbox = await at.client.sandboxes.create();
  await sandbox.run("true");
  const kinds = (await at.client.history({ sandbox: sandbox.id })).map((event) => event.kind);
  assert.deepEqual(kinds, ["sandbox_created", "sandbox_ready", "process_started", "process_ended"]);
  const seen: string[] = [];
  for await (const event of at.client.events({ sandbox: sandbox.id, since: 0 })) {
    seen.push(event.kind);
    if (seen.length === kinds.length) await sandbox.pause();
    if (event.kind === "sandbox_paused") break;
  }
  assert.deepEqual(seen, [...kinds, "sandbox_paused"]);
  const stop = AbortSignal.timeout(200);
  const nothing = at.client.events({ signal: stop });
  assert.ok((await failureOf(nothing.next())) instanceof TimedOutError);
});

test("new Sandbox(url): the short way", async () => {
  await using sandbox = new Sandbox(at.server.url);
  assert.equal((await failureOf(sandbox.exec("true"))).name, "SandboxNotReadyError");
  await sandbox.create();
  assert.equal((await sandbox.exec("echo one")).stdout, "one\n");
  await sandbox.writeFile("notes/a.txt", "some text");
  assert.equal(await sandbox.readFile("notes/a.txt"), "some text");
  assert.equal((await sandbox.runPython("print(open('notes/a.txt').read())")).stdout, "some text\n");
  let streamed = "";
  for await (const { data } of sandbox.execStream("echo a; echo b")) streamed += Buffer.from(data).toString();
  assert.equal(streamed, "a\nb\n");
  for (const name of ["-e .", "../x", "https://x", "a b", "", "--index-url=x", "a;b"]) {
    assert.ok((await failureOf(sandbox.pipInstall(name))) instanceof InvalidArgumentError, name);
  }
  const refused = await failureOf(sandbox.pipInstall(["requests[socks]>=2,<3", "numpy"]));
  assert.ok(refused instanceof ConflictingOptionsError);
  assert.match(String(refused.cause), /pypi\.org, files\.pythonhosted\.org/);
});

test("what is wrong is said in its own words", async () => {
  const { client } = at;
  assert.equal((await failureOf(client.sandboxes.create({ name: "Not A Name" }))).name, "InvalidNameError");
  assert.ok((await failureOf(client.sandboxes.create({ limits: { memory: "lots" } }))) instanceof InvalidArgumentError);
  assert.throws(() => new Belljar("ftp://x"), InvalidArgumentError);
  const nobody = await failureOf(new Belljar("http://127.0.0.1:1").server());
  assert.ok(nobody instanceof ServerUnreachableError);
  assert.equal((nobody.cause as NodeJS.ErrnoException).code, "ECONNREFUSED");
});

test("the same key gives the same sandbox", async () => {
  const idempotencyKey = `key-${Math.random()}`;
  await using one = await at.client.sandboxes.create({ idempotencyKey });
  const two = await at.client.sandboxes.create({ idempotencyKey });
  assert.equal(one.id, two.id);
});

test("the Unix socket and keys", async () => {
  const local = new Belljar(at.server.socket);
  assert.equal((await local.caller()).by, "socket");
  local.close();
  assert.equal((await failureOf(local.caller())).name, "InterruptedError");
  const wrong = new Belljar({ url: at.server.url, apiKey: "bj_wrong" });
  assert.equal((await failureOf(wrong.caller())).name, "UnauthenticatedError");
  wrong.close();
});

test("without an address the local server is found or started, also where its path is long", async () => {
  const here = await realpath(await mkdtemp(join(tmpdir(), "belljar-local-")));
  const stateDir = join(here, "a".repeat(60), "b".repeat(60));
  try {
    const clients = Array.from({ length: 3 }, () => new Belljar({ stateDir, binary: BINARY }));
    const servers = await Promise.all(clients.map(async (client) => await client.server()));
    assert.equal(new Set(servers.map(({ pid }) => pid)).size, 1);
    assert.equal(servers[0]?.automatic, true);
    const [first] = clients;
    assert.ok(first !== undefined && servers[0] !== undefined);
    const sandbox = await first.sandboxes.create();
    // A local server that is gone is started again.
    process.kill(servers[0].pid, "SIGKILL");
    assert.equal((await sandbox.run("echo still here")).stdout, "still here\n");
    assert.notEqual((await first.server()).pid, servers[0].pid);
    await sandbox.destroy();
    clients.forEach((client) => client.close());
  } finally {
    await cleanUp(stateDir);
    await rm(here, { recursive: true });
  }
});
