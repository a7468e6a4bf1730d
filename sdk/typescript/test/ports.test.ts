// Ports of a sandbox, seen from outside.
import assert from "node:assert/strict";
import http from "node:http";
import { test } from "node:test";
import { useServer } from "./server.js";

const at = useServer();

test("a port is shown to who has its token, to everybody, and to nobody", { timeout: 180_000 }, async () => {
  await using sandbox = await at.client.sandboxes.create({ files: { "index.html": "from inside" } });
  await sandbox.start("python3 -u -m http.server --bind 127.0.0.1 8000", { timeout: 0 });
  const shown = await sandbox.expose(8000);
  assert.ok(shown.url !== null && shown.token !== null);
  // The name is for a browser; here it is said to the server, whose address is known.
  const { host } = new URL(shown.url);
  const visit = async (headers: Record<string, string> = {}): Promise<{ status: number; body: string }> => {
    const { hostname, port } = new URL(at.server.url);
    return await new Promise((resolve, reject) => {
      const request = http.get({ host: hostname, port, path: "/", headers: { host, ...headers } }, async (answer) => {
        resolve({ status: answer.statusCode ?? 0, body: Buffer.concat(await answer.toArray()).toString() });
      });
      request.once("error", reject);
    });
  };
  const token = { "x-belljar-token": shown.token };
  while ((await visit(token)).status >= 500);
  assert.deepEqual(await visit(token), { status: 200, body: "from inside" });
  assert.ok((await visit()).status >= 400);
  await sandbox.expose(8000, { public: true });
  assert.equal((await visit()).body, "from inside");
  assert.deepEqual(
    (await sandbox.ports()).map(({ port }) => port),
    [8000],
  );
  await sandbox.hide(8000);
  assert.deepEqual(await sandbox.ports(), []);
  assert.ok((await visit(token)).status >= 400);
});
