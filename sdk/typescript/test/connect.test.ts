// Ways to a server: keys, TLS, the environment; and refusals that come while much is still being sent.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile, rm } from "node:fs/promises";
import { test } from "node:test";
import { promisify } from "node:util";
import {
  Belljar,
  FileNotFoundError,
  PermissionDeniedError,
  SandboxNotFoundError,
  ServerUnreachableError,
} from "belljar";
import { BINARY, TestServer, environment, failureOf, selfSigned, useServer } from "./server.js";

const run = promisify(execFile);
const at = useServer();

test("a refusal is heard while a large body is still on its way", async () => {
  await using sandbox = await at.client.sandboxes.create();
  let sent = 0;
  async function* endless(): AsyncGenerator<Uint8Array> {
    const piece = new Uint8Array(1 << 16);
    for (sent = 0; sent < 4096; sent += 1) yield piece;
  }
  const large = new Uint8Array(64 << 20);
  assert.ok((await failureOf(sandbox.files.write("no/such/place", large))) instanceof FileNotFoundError);
  assert.ok((await failureOf(sandbox.files.write("no/such/place", endless()))) instanceof FileNotFoundError);
  const gone = await at.client.sandboxes.create();
  await gone.destroy();
  const error = await failureOf(gone.files.write("x", endless()));
  assert.match(error.code ?? "", /^sandbox-(gone|not-found|not-ready)$/);
});

test("over TLS, with a key, by the environment", async (t) => {
  const made = await selfSigned();
  if (made === undefined) {
    console.log("SKIPPED typescript TLS: openssl is not here to make a certificate");
    return t.skip("no openssl");
  }
  const server = await TestServer.start("--tls-cert", made.certificate, "--tls-key", made.key);
  try {
    const ca = await readFile(made.certificate);
    const { stdout } = await run(
      BINARY,
      ["--state-dir", server.stateDir, "keys", "create", "--json", "--scopes", "read"],
      { env: environment() },
    );
    const { secret: apiKey } = JSON.parse(stdout) as { secret: string };
    const client = new Belljar({ url: server.url, ca, apiKey });
    assert.match(server.url, /^https:/);
    assert.deepEqual((await client.caller()).scopes, ["read"]);
    assert.ok((await failureOf(client.sandboxes.create())) instanceof PermissionDeniedError);
    client.close();
    const untrusting = new Belljar({ url: server.url, apiKey });
    assert.ok((await failureOf(untrusting.caller())) instanceof ServerUnreachableError);
    untrusting.close();
    Object.assign(process.env, { BELLJAR_SERVER: server.url, BELLJAR_API_KEY: apiKey });
    const meant = new Belljar({ ca });
    assert.equal((await meant.caller()).by, "key");
    assert.ok((await failureOf(meant.sandboxes.get("nobody"))) instanceof SandboxNotFoundError);
    meant.close();
  } finally {
    delete process.env["BELLJAR_SERVER"];
    delete process.env["BELLJAR_API_KEY"];
    await server.stop();
    await rm(made.directory, { recursive: true });
  }
});
