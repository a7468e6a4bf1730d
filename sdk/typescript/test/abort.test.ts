// A signal that has fired ends every call before anything is asked, and every generator with it.
import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { AbortedError, defineSandbox } from "belljar";
import { failureOf, useServer } from "./server.js";

const at = useServer();
const HERE = fileURLToPath(new URL(".", import.meta.url));

async function drained(generator: AsyncIterable<unknown>): Promise<void> {
  for await (const _ of generator);
}

test("every call takes a signal", async () => {
  const { client } = at;
  await using sandbox = await client.sandboxes.create();
  const process = await sandbox.start(["sleep", "1000"], { stdin: true });
  const signal = AbortSignal.abort("no longer wanted");
  const given = { signal };
  const { files, network } = sandbox;
  const calls: Record<string, () => Promise<unknown>> = {
    create: () => client.sandboxes.create(given),
    getOrCreate: () => client.sandboxes.getOrCreate("aborted", given),
    get: () => client.sandboxes.get(sandbox.id, given),
    list: () => client.sandboxes.list(given),
    explain: () => client.sandboxes.explain(given),
    boot: () => defineSandbox({ client }).boot(given),
    process: () => client.process(process.id, given),
    processes: () => client.processes(given),
    approvals: () => client.approvals(given),
    events: () => drained(client.events(given)),
    history: () => client.history(given),
    audit: () => drained(client.audit(given)),
    server: () => client.server(given),
    caller: () => client.caller(given),
    probe: () => client.probe(given),
    findLeaks: () => client.findLeaks(given),
    stopServer: () => client.stopServer(given),
    fetchTemplate: () => drained(client.fetchTemplate("host", given)),
    templates: () => client.templates(given),
    profiles: () => client.profiles(given),
    "snapshots.create": () => client.snapshots.create(sandbox.id, given),
    "snapshots.get": () => client.snapshots.get("s", given),
    "snapshots.list": () => client.snapshots.list(given),
    "snapshots.restore": () => client.snapshots.restore("s", given),
    "snapshots.remove": () => client.snapshots.remove("s", given),
    "policies.put": () => client.policies.put("p", "name: p", given),
    "policies.get": () => client.policies.get("p", given),
    "policies.list": () => client.policies.list(given),
    "policies.remove": () => client.policies.remove("p", given),
    "policies.learn": () => client.policies.learn(sandbox.id, given),
    "secrets.set": () => client.secrets.set("s", "v", given),
    "secrets.list": () => client.secrets.list(given),
    "secrets.remove": () => client.secrets.remove("s", given),
    "keys.create": () => client.keys.create("k", given),
    "keys.list": () => client.keys.list(given),
    "keys.revoke": () => client.keys.revoke("k", given),
    "tenants.create": () => client.tenants.create("t", given),
    "tenants.get": () => client.tenants.get("t", given),
    "tenants.list": () => client.tenants.list(given),
    "tenants.setQuotas": () => client.tenants.setQuotas("t", {}, given),
    "tenants.remove": () => client.tenants.remove("t", given),
    "webhooks.create": () => client.webhooks.create("http://127.0.0.1:9/", { secret: "signs-what-is-sent", ...given }),
    "webhooks.list": () => client.webhooks.list(given),
    "webhooks.remove": () => client.webhooks.remove("w", given),
    refresh: () => sandbox.refresh(given),
    run: () => sandbox.run("true", given),
    runCode: () => sandbox.runCode("bash", "true", given),
    start: () => sandbox.start("true", given),
    pty: () => sandbox.pty(["true"], given),
    "sandbox.processes": () => sandbox.processes(given),
    expose: () => sandbox.expose(80, given),
    ports: () => sandbox.ports(given),
    hide: () => sandbox.hide(80, given),
    forward: () => sandbox.forward(80, given),
    snapshot: () => sandbox.snapshot(given),
    "sandbox.explain": () => sandbox.explain(given),
    issueToken: () => sandbox.issueToken(given),
    extend: () => sandbox.extend(given),
    pause: () => sandbox.pause(given),
    resume: () => sandbox.resume(given),
    diff: () => sandbox.diff(given),
    apply: () => sandbox.apply(given),
    discard: () => sandbox.discard(given),
    serveTools: () => sandbox.serveTools({}, given),
    serveConnections: () => sandbox.serveConnections(() => undefined, given),
    execStream: () => drained(sandbox.execStream("true", given)),
    writeFile: () => sandbox.writeFile("f", "x", given),
    readFile: () => sandbox.readFile("f", given),
    pipInstall: () => sandbox.pipInstall("x", given),
    destroy: () => sandbox.destroy(given),
    "network.show": () => network.show(given),
    "network.allow": () => network.allow(["example.com"], given),
    "network.deny": () => network.deny(["example.com"], given),
    "network.change": () => network.change({}, given),
    "network.log": () => drained(network.log(given)),
    "process.refresh": () => process.refresh(given),
    "process.wait": () => process.wait(given),
    "process.cancel": () => process.cancel(given),
    "process.signal": () => process.signal("SIGTERM", given),
    "process.write": () => process.write("x", given),
    "process.closeInput": () => process.closeInput(given),
    "process.resize": () => process.resize({ rows: 1, columns: 1 }, given),
    "process.logs": () => drained(process.logs(given)),
    "files.read": () => files.read("f", given),
    "files.readText": () => files.readText("f", given),
    "files.write": () => files.write("f", "x", given),
    "files.append": () => files.append("f", "x", given),
    "files.list": () => files.list("/", given),
    "files.stat": () => files.stat("f", given),
    "files.exists": () => files.exists("f", given),
    "files.makeDirectory": () => files.makeDirectory("d", given),
    "files.move": () => files.move("a", "b", given),
    "files.copy": () => files.copy("a", "b", given),
    "files.remove": () => files.remove("f", given),
    "files.chmod": () => files.chmod("f", 0o600, given),
    "files.watch": () => drained(files.watch("/workspace", given)),
    "files.search": () => drained(files.search({ content: "x", ...given })),
    "files.readArchive": () => files.readArchive("/workspace", given),
    "files.upload": () => files.upload(HERE, "/workspace", given),
    "files.download": () => files.download("/workspace", HERE, given),
  };
  for (const [name, call] of Object.entries(calls)) {
    const error = await failureOf(call()).catch((other: unknown) => new Error(`${name}: ${String(other)}`));
    assert.ok(error instanceof AbortedError, `${name}: ${String(error)}`);
    assert.equal(error.cause, "no longer wanted", name);
  }
  // Nothing of it happened.
  assert.equal((await process.refresh()).exitCode, null);
  assert.equal((await sandbox.refresh()).state, "ready");
});
