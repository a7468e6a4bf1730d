// What a sandbox reaches, from both sides.
import assert from "node:assert/strict";
import http from "node:http";
import type { AddressInfo } from "node:net";
import { networkInterfaces } from "node:os";
import { test } from "node:test";
import { ConflictingOptionsError, InvalidNetworkRuleError, type NetworkDecision, type Sandbox } from "belljar";
import { eventually, failureOf, useServer } from "./server.js";

const at = useServer();

async function logged(sandbox: Sandbox, denied: boolean): Promise<NetworkDecision[]> {
  const decisions: NetworkDecision[] = [];
  for await (const decision of sandbox.network.log({ denied })) decisions.push(decision);
  return decisions;
}

test("what is not allowed is denied and on record; rules change while it runs", async () => {
  await using sandbox = await at.client.sandboxes.create({ allow: ["example.com"] });
  assert.deepEqual((await sandbox.network.show()).allow, ["example.com"]);
  assert.notEqual((await sandbox.run("getent hosts other.example")).exitCode, 0);
  const [first] = await logged(sandbox, true);
  assert.equal(first?.stage, "dns");
  assert.equal(first?.host, "other.example");
  assert.equal(first?.verdict, "deny");
  assert.deepEqual((await sandbox.network.allow("*.example.org")).allow.sort(), ["*.example.org", "example.com"]);
  assert.deepEqual((await sandbox.network.deny("bad.example.org")).deny, ["bad.example.org"]);
  assert.equal((await sandbox.network.change({ replace: ["only.example"], ask: 0 })).allow.join(), "only.example");
  assert.ok((await failureOf(sandbox.network.allow("http://x"))) instanceof InvalidNetworkRuleError);
  assert.deepEqual(await at.client.approvals({ sandbox: sandbox.id }), []);
});

test("an address of this machine is reached where its range is named, and cut off after", async (t) => {
  const address = Object.values(networkInterfaces())
    .flat()
    .find((one) => one?.family === "IPv4" && !one.internal)?.address;
  if (address === undefined) {
    console.log("SKIPPED typescript network: this machine has no address but loopback");
    return t.skip("no address");
  }
  const requests: string[] = [];
  const server = http.createServer((request, answer) => {
    requests.push(request.url ?? "");
    answer.end("reached");
  });
  await new Promise<void>((resolve) => server.listen(0, address, resolve));
  const url = `http://${address}:${(server.address() as AddressInfo).port}`;
  try {
    await using sandbox = await at.client.sandboxes.create({ network: "full", cidrs: [`${address}/32`] });
    const fetch = (path: string): string =>
      `python3 -c "import urllib.request; print(urllib.request.urlopen('${url}${path}', timeout=5).read().decode())"`;
    assert.equal((await sandbox.run(fetch("/first"))).stdout, "reached\n");
    await sandbox.network.change({ cidrs: [] });
    assert.notEqual((await sandbox.run(fetch("/second"))).exitCode, 0);
    assert.deepEqual(requests, ["/first"]);
    // Flows are written down when they end, which may be a moment after their process did.
    let decisions: NetworkDecision[] = [];
    await eventually(async () => {
      decisions = await logged(sandbox, false);
      assert.deepEqual(decisions.map(({ verdict }) => verdict).sort(), ["allow", "deny"]);
    });
    assert.ok(decisions.every(({ pid, program }) => (pid === null) === (program === null)));
  } finally {
    server.close();
    server.closeAllConnections();
  }
});

test("what nothing allows waits for somebody, who says no", async () => {
  await using sandbox = await at.client.sandboxes.create({ allow: ["example.com"], ask: 120 });
  const running = sandbox.run("python3 -c \"import urllib.request; urllib.request.urlopen('http://asked.example/')\"");
  const asked = { sandbox: sandbox.id, signal: AbortSignal.timeout(60_000) };
  let [approval] = await at.client.approvals(asked);
  while (approval === undefined) [approval] = await at.client.approvals(asked);
  assert.equal(approval.info.host, "asked.example");
  await approval.answer("deny");
  assert.notEqual((await running).exitCode, 0);
});

test("packages are not installed where their index cannot be reached, and the missing hosts are named", async () => {
  await using sandbox = await at.client.sandboxes.create({ allow: ["pypi.org"] });
  const refused = await failureOf(sandbox.pipInstall("requests"));
  assert.ok(refused instanceof ConflictingOptionsError);
  assert.equal(refused.cause, "not allowed: files.pythonhosted.org");
  assert.match(refused.remedy ?? "", /network\.allow\("files\.pythonhosted\.org"\)/);
});
