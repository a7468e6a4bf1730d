// What a function of this process decides about a sandbox's network, seen from both sides.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import dgram from "node:dgram";
import http from "node:http";
import type { AddressInfo } from "node:net";
import { networkInterfaces } from "node:os";
import { after, before, test } from "node:test";
import { Belljar, type Connection, InvalidArgumentError, type Sandbox, defineSandbox, network } from "belljar";
import { TestServer, eventually, failureOf } from "./server.js";

const address = Object.values(networkInterfaces())
  .flat()
  .find((one) => one?.family === "IPv4" && !one.internal)?.address;
const missing = address === undefined ? "this machine has no address but loopback" : false;
if (missing) console.log(`SKIPPED typescript connections: ${missing}`);

const TOKEN = "Bearer token-of-the-host";
const arrived: string[] = [];
const asked: string[] = [];
let server: TestServer;
let client: Belljar;
let origin = 0;

/** Tells the digest of what arrived: what is hidden inside is hidden in replies, too. */
const web = http.createServer((request, answer) => {
  arrived.push(`${request.method} ${request.headers.host}${request.url}`);
  const digest = createHash("sha256").update(String(request.headers.authorization)).digest("hex");
  answer.end(request.url === "/digest" ? digest : JSON.stringify(request.headers));
});

/** Knows every name below `test`, at the address of this machine. */
const names = dgram.createSocket("udp4", (question, sender) => {
  let at = 12;
  const labels: string[] = [];
  for (let length = question[at] ?? 0; length > 0; length = question[at] ?? 0) {
    labels.push(question.subarray(at + 1, at + 1 + length).toString());
    at += 1 + length;
  }
  asked.push(labels.join("."));
  const found = question.readUInt16BE(at + 1) === 1 && labels.at(-1) === "test";
  const head = Buffer.from(question.subarray(0, 12));
  head.writeUInt16BE(0x8180, 2);
  head.writeUInt16BE(found ? 1 : 0, 6);
  head.writeUInt16BE(0, 10);
  const record = [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, ...(address ?? "0.0.0.0").split(".").map(Number)];
  names.send(
    Buffer.concat([head, question.subarray(12, at + 5), Buffer.from(found ? record : [])]),
    sender.port,
    sender.address,
  );
});

before(async () => {
  if (missing) return;
  await new Promise<void>((resolve) => web.listen(0, address, resolve));
  await new Promise<void>((resolve) => names.bind(0, "127.0.0.1", resolve));
  origin = (web.address() as AddressInfo).port;
  server = await TestServer.start("--dns-upstream", `127.0.0.1:${names.address().port}`);
  client = new Belljar(server.url);
});

after(async () => {
  if (missing) return;
  client.close();
  await server.stop();
  web.close();
  web.closeAllConnections();
  names.close();
});

async function get(sandbox: Sandbox, host: string, path = "/", method = "GET"): Promise<string> {
  const code = `
import urllib.request, urllib.error
request = urllib.request.Request("http://${host}:${origin}${path}", method="${method}", headers={"Cookie": "own"})
try:
    print(urllib.request.urlopen(request, timeout=20).read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
except OSError:
    print("denied")
`;
  const { stdout, stderr } = await sandbox.runPython(code, { timeout: 60 });
  assert.equal(stderr, "");
  return stdout.trim();
}

test("a policy accepts names, connections and requests, one by one", { skip: missing }, async () => {
  const seen: Connection[] = [];
  const urls: string[] = [];
  const definition = defineSandbox({
    client,
    network: network.policy(
      async (connection) => {
        seen.push(connection);
        await Promise.resolve();
        const dns = connection.matchDns();
        if (dns?.name === "broken.test") throw new Error("it broke");
        if (dns && dns.name !== "never.test") return void dns.accept();
        if (connection.matchTcp({ port: origin }) === undefined) return;
        connection.matchHttp("*.api.test")?.accept((request) => {
          urls.push(`${request.protocol} ${request.method} ${request.url.href} ${request.destination.hostname}`);
          assert.equal(request.destination.original.port, origin);
          if (request.method === "DELETE") return request.deny("this sandbox only reads");
          if (request.method !== "GET") throw new Error("a secret of this process");
          request.headers.set("authorization", TOKEN);
          request.headers.delete("cookie");
        });
        if (connection.host === "raw.test") connection.accept();
      },
      { cidrs: [`${address}/32`] },
    ),
  });
  await using lane = await definition.boot();
  const { sandbox } = lane;
  assert.equal((await sandbox.network.show()).callbackConnections, true);
  assert.equal(await get(sandbox, "v1.api.test", "/digest"), createHash("sha256").update(TOKEN).digest("hex"));
  const headers = await get(sandbox, "v1.api.test", "/headers");
  assert.ok(!headers.includes("token-of-the-host") && !headers.includes("own"), headers);
  assert.match(await get(sandbox, "v1.api.test", "/", "DELETE"), /^403 .*this sandbox only reads/);
  const failed = await get(sandbox, "v1.api.test", "/", "PUT");
  assert.ok(failed.startsWith("403 ") && !failed.includes("a secret"), failed);
  assert.match(await get(sandbox, "raw.test"), /"cookie":"own"/);
  assert.match(await get(sandbox, "other.test"), /^(denied|403 )/);
  assert.equal(await get(sandbox, "never.test"), "denied");
  assert.equal(await get(sandbox, "broken.test"), "denied");
  assert.ok(!asked.includes("never.test") && !asked.includes("broken.test"), "nobody outside was asked");
  assert.deepEqual(
    arrived.map((line) => line.split(":")[0]),
    ["GET v1.api.test", "GET v1.api.test", "GET raw.test"],
  );
  assert.equal(urls[0], `http/1.1 GET http://v1.api.test:${origin}/digest v1.api.test`);
  const flow = seen.find((one) => one.host === "v1.api.test");
  assert.equal(flow?.dst.ip, address);
  assert.equal(flow?.transport, "tcp");
  // Flows are written down when they end, which may be a moment after their process did.
  await eventually(async () => {
    const reasons = new Set<string>();
    for await (const { host, reason } of sandbox.network.log()) reasons.add(`${host} ${reason}`);
    for (const expected of [
      "v1.api.test callback-allows",
      "v1.api.test callback-unanswered",
      "never.test callback-denies",
      "broken.test callback-unanswered",
    ])
      assert.ok(reasons.has(expected), [...reasons].join(", "));
  });
});

test("it answers for what waits, and only where it is asked", { skip: missing }, async () => {
  const connections = (connection: Connection): void => {
    if (connection.host === "asked.test") connection.accept();
  };
  await using waiting = await client.sandboxes.create({
    allow: ["listed.test"],
    cidrs: [`${address}/32`],
    ask: 60,
    connections,
  });
  assert.match(await get(waiting, "listed.test"), /"cookie"/);
  assert.match(await get(waiting, "asked.test"), /"cookie"/);
  assert.match(await get(waiting, "other.test"), /^(denied|403 )/);
  await using plain = await client.sandboxes.create({ allow: ["listed.test"] });
  const refused = await failureOf(plain.serveConnections(connections));
  assert.ok(refused instanceof InvalidArgumentError, String(refused));
});

test("a process that is gone decides nothing", { skip: missing }, async () => {
  const other = new Belljar(server.url);
  const { id } = await other.sandboxes.create({
    cidrs: [`${address}/32`],
    connections: (connection) => void connection.accept(),
  });
  assert.match(await get(await client.sandboxes.get(id), "any.test"), /"cookie"/);
  other.close();
  await using left = await client.sandboxes.get(id);
  let answer = await get(left, "any.test");
  for (let tries = 0; answer.includes("cookie") && tries < 50; tries++) answer = await get(left, "any.test");
  assert.match(answer, /^(denied|403 )/);
});
