// Ports of a sandbox as ports of this machine, for any protocol.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { readFile, rm } from "node:fs/promises";
import net from "node:net";
import { test } from "node:test";
import { promisify } from "node:util";
import { Belljar, BelljarError, type Forward, InvalidArgumentError, type Sandbox } from "belljar";
import { BINARY, TestServer, environment, failureOf, selfSigned, useServer } from "./server.js";

const at = useServer();

/** Reads to the end, then tells the digest of what came: an end in one direction only has to arrive. */
const DIGESTS = `
import hashlib, socket, threading
listener = socket.create_server(("127.0.0.1", 8000))
print("listening", flush=True)
def serve(peer):
    data = b""
    while piece := peer.recv(65536):
        data += piece
    peer.sendall(hashlib.sha256(data).hexdigest().encode())
    peer.close()
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],)).start()
`;

/** Says much without being asked, and is gone. */
const SPEAKS = `
import socket
listener = socket.create_server(("127.0.0.1", 8001))
print("listening", flush=True)
while True:
    peer, _ = listener.accept()
    peer.sendall(b"x" * 3_000_000)
    peer.close()
`;

async function serve(sandbox: Sandbox, code: string): Promise<void> {
  const process = await sandbox.start(["python3", "-c", code], { timeout: 0 });
  for await (const _ of process.logs({ follow: true })) break;
}

/** Sends everything, says that it is over, and reads to the end. */
async function exchange(forward: Forward, data: Uint8Array): Promise<Buffer> {
  const socket = net.connect({ host: forward.host, port: forward.port, allowHalfOpen: true });
  socket.end(data);
  return Buffer.concat(await socket.toArray());
}

test("connections are joined to a port inside, many at once, and end in each direction by itself", async () => {
  await using sandbox = await at.client.sandboxes.create();
  await serve(sandbox, DIGESTS);
  await serve(sandbox, SPEAKS);
  const data = randomBytes(1_000_000);
  const digest = createHash("sha256").update(data).digest("hex");
  await using forward = await sandbox.forward(8000);
  assert.equal(forward.host, "127.0.0.1");
  const answers = await Promise.all(Array.from({ length: 5 }, async () => await exchange(forward, data)));
  assert.deepEqual(
    answers.map(String),
    answers.map(() => digest),
  );
  await using speaks = await sandbox.forward(8001);
  assert.equal((await exchange(speaks, Buffer.alloc(0))).length, 3_000_000);
  // Nobody listens there: the connection just ends.
  await using silent = await sandbox.forward(8002);
  assert.equal((await exchange(silent, Buffer.alloc(0))).length, 0);
});

test("it works over the Unix socket and at a chosen port, and ends with its signal, its block and its client", async () => {
  await using client = new Belljar(at.server.socket);
  await using sandbox = await client.sandboxes.create();
  await serve(sandbox, DIGESTS);
  const empty = createHash("sha256").digest("hex");
  let chosen = 0;
  {
    await using forward = await sandbox.forward(8000);
    chosen = forward.port;
    assert.equal(String(await exchange(forward, Buffer.alloc(0))), empty);
  }
  const refused = async (port: number): Promise<void> => {
    const socket = net.connect({ host: "127.0.0.1", port });
    const error = await new Promise<NodeJS.ErrnoException>((resolve) => socket.once("error", resolve));
    assert.equal(error.code, "ECONNREFUSED");
  };
  await refused(chosen);
  const end = new AbortController();
  const again = await sandbox.forward(8000, { localPort: chosen, signal: end.signal });
  assert.equal(again.port, chosen);
  // One that is open and says nothing ends too.
  const open = net.connect({ host: "127.0.0.1", port: chosen });
  const closed = new Promise((resolve) => open.once("close", resolve));
  open.on("error", () => undefined);
  await new Promise((resolve) => open.once("connect", resolve));
  end.abort();
  await closed;
  await again.close();
  await refused(chosen);
  const other = new Belljar(at.server.url);
  const { port } = await (await other.sandboxes.get(sandbox.id)).forward(8000);
  other.close();
  await refused(port);
});

test("what cannot be a port is refused", async () => {
  await using sandbox = await at.client.sandboxes.create();
  for (const port of [0, 65536, 1.5])
    assert.ok((await failureOf(sandbox.forward(port))) instanceof InvalidArgumentError);
  const aborted = await failureOf(sandbox.forward(8000, { signal: AbortSignal.abort() }));
  assert.equal(aborted.name, "AbortError");
});

test("ports are joined over TLS, with a key", async (t) => {
  const made = await selfSigned();
  if (made === undefined) {
    console.log("SKIPPED typescript TLS: openssl is not here to make a certificate");
    return t.skip("no openssl");
  }
  const server = await TestServer.start("--tls-cert", made.certificate, "--tls-key", made.key);
  try {
    const words = ["--state-dir", server.stateDir, "keys", "create", "--json"];
    const { stdout } = await promisify(execFile)(BINARY, words, { env: environment() });
    const { secret: apiKey } = JSON.parse(stdout) as { secret: string };
    assert.match(server.url, /^https:/);
    await using client = new Belljar({ url: server.url, ca: await readFile(made.certificate), apiKey });
    await using sandbox = await client.sandboxes.create();
    await serve(sandbox, DIGESTS);
    await using forward = await sandbox.forward(8000);
    const data = randomBytes(300_000);
    const digest = createHash("sha256").update(data).digest("hex");
    const answers = await Promise.all(Array.from({ length: 3 }, async () => await exchange(forward, data)));
    assert.deepEqual(answers.map(String), [digest, digest, digest]);
    // By the name that the certificate has, too.
    const named = server.url.replace("127.0.0.1", "localhost");
    await using other = new Belljar({ url: named, ca: await readFile(made.certificate), apiKey });
    await using again = await (await other.sandboxes.get(sandbox.id)).forward(8000);
    assert.equal(String(await exchange(again, data)), digest);
    // Who does not trust the certificate, or has no key, is joined to nothing.
    for (const options of [{ apiKey }, { ca: await readFile(made.certificate), apiKey: "wrong" }]) {
      await using stranger = new Belljar({ url: server.url, ...options });
      assert.ok((await failureOf(stranger.sandboxes.get(sandbox.id))) instanceof BelljarError);
    }
  } finally {
    await server.stop();
    await rm(made.directory, { recursive: true });
  }
});
