// Everything that the server does can be asked for from here: each operation of its own document is called by some member
// of the SDK. The requests go to a server of this test's own, which writes them down and refuses.
import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import http from "node:http";
import { type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Duplex } from "node:stream";
import { after, before, test } from "node:test";
import { Belljar, type Process, type Sandbox, tool } from "belljar";
import { useServer } from "./server.js";

const at = useServer();

/** Operations without a member of their own, and what there is in their place. */
const OTHERWISE: Record<string, string> = {
  "POST /v1/run": "a sandbox in an `await using` block",
  "GET /v1/sandboxes/{sandbox}/shell": "`pty`, which is a process that can be found again",
  "GET /v1/processes/{process}/attach": "`logs`, `write` and `resize`, which survive losses of the connection",
  "DELETE /v1/sandboxes/{sandbox}/files/content": "`files.remove`",
};

interface Given {
  readonly client: Belljar;
  readonly sandbox: Sandbox;
  readonly process: Process;
  /** A directory of this machine that is empty. */
  readonly empty: string;
}

const noted: string[] = [];
const REFUSAL = JSON.stringify({ code: "internal", message: "only written down" });
/** What there has to be, so that it can be asked for more. */
const THERE: Record<string, unknown> = {
  "GET /v1/sandboxes/s": { sandbox_id: "s", state: "ready", labels: {}, metadata: {} },
  "GET /v1/processes/p": { process_id: "p", sandbox_id: "s", status: "running" },
  "GET /v1/approvals": { approvals: [{ approval_id: "a", sandbox_id: "s" }] },
};

const server = http.createServer((request, response) => {
  const asked = note(request);
  request.resume();
  const there = THERE[asked];
  response.writeHead(there === undefined ? 400 : 200, { "content-type": "application/json" });
  response.end(there === undefined ? REFUSAL : JSON.stringify(there));
});
server.on("upgrade", (request: http.IncomingMessage, socket: Duplex) => {
  note(request);
  socket.end(`HTTP/1.1 400 No\r\ncontent-type: application/json\r\ncontent-length: ${REFUSAL.length}\r\n\r\n${REFUSAL}`);
});

function note(request: http.IncomingMessage): string {
  const asked = `${request.method} ${new URL(request.url ?? "/", "http://here").pathname}`;
  noted.push(asked);
  return asked;
}

before(async () => await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve)));
after(() => {
  server.close();
  server.closeAllConnections();
});

/** The first thing that comes. */
async function first(pieces: AsyncIterable<unknown>): Promise<void> {
  for await (const _ of pieces) return;
}

const echo = tool({ description: "Says it again.", schema: { type: "object" }, run: async (value) => value });

const CALLS: readonly ((given: Given) => Promise<unknown>)[] = [
  async ({ client }) => await client.server(),
  async ({ client }) => await client.caller(),
  async ({ client }) => await client.templates(),
  async ({ client }) => await first(client.fetchTemplate("image:x")),
  async ({ client }) => await client.profiles(),
  async ({ client }) => await client.probe(),
  async ({ client }) => await client.findLeaks(),
  async ({ client }) => await client.stopServer(),
  async ({ client }) => await first(client.audit()),
  async ({ client }) => await client.history(),
  async ({ client }) => await (await client.approvals())[0]?.answer("once"),
  async ({ client }) => await client.keys.create("k"),
  async ({ client }) => await client.keys.list(),
  async ({ client }) => await client.keys.revoke("k"),
  async ({ client }) => await client.tenants.create("t"),
  async ({ client }) => await client.tenants.get("t"),
  async ({ client }) => await client.tenants.list(),
  async ({ client }) => await client.tenants.setQuotas("t", {}),
  async ({ client }) => await client.tenants.remove("t"),
  async ({ client }) => await client.webhooks.create("http://127.0.0.1/", { secret: "signs-what-is-sent" }),
  async ({ client }) => await client.webhooks.list(),
  async ({ client }) => await client.webhooks.remove("w"),
  async ({ client }) => await client.policies.put("p", "name: p"),
  async ({ client }) => await client.policies.get("p"),
  async ({ client }) => await client.policies.list(),
  async ({ client }) => await client.policies.remove("p"),
  async ({ client }) => await client.policies.learn("s"),
  async ({ client }) => await client.secrets.set("n", "v"),
  async ({ client }) => await client.secrets.list(),
  async ({ client }) => await client.secrets.remove("n"),
  async ({ client }) => await client.snapshots.list(),
  async ({ client }) => await client.snapshots.get("n"),
  async ({ client }) => await client.snapshots.restore("n"),
  async ({ client }) => await client.snapshots.remove("n"),
  async ({ client }) => await client.processes(),
  async ({ client }) => await client.sandboxes.create(),
  async ({ client }) => await client.sandboxes.list(),
  async ({ client }) => await client.sandboxes.explain(),
  async ({ sandbox }) => await sandbox.run("true"),
  async ({ sandbox }) => await sandbox.start("true"),
  async ({ sandbox }) => await sandbox.extend(),
  async ({ sandbox }) => await sandbox.pause(),
  async ({ sandbox }) => await sandbox.resume(),
  async ({ sandbox }) => await sandbox.snapshot(),
  async ({ sandbox }) => await sandbox.issueToken(),
  async ({ sandbox }) => await sandbox.expose(80),
  async ({ sandbox }) => await sandbox.ports(),
  async ({ sandbox }) => await sandbox.hide(80),
  async ({ sandbox }) => await sandbox.diff(),
  async ({ sandbox }) => await sandbox.apply(),
  async ({ sandbox }) => await sandbox.discard(),
  async ({ sandbox }) => await sandbox.serveTools({ echo }),
  async ({ sandbox }) => await sandbox.network.show(),
  async ({ sandbox }) => await sandbox.network.allow("example.org"),
  async ({ sandbox }) => await first(sandbox.network.log()),
  async ({ sandbox }) => await sandbox.files.list(),
  async ({ sandbox }) => await sandbox.files.read("f"),
  async ({ sandbox }) => await sandbox.files.write("f", "x"),
  async ({ sandbox }) => await sandbox.files.stat("f"),
  async ({ sandbox }) => await sandbox.files.makeDirectory("d"),
  async ({ sandbox }) => await sandbox.files.move("f", "g"),
  async ({ sandbox }) => await sandbox.files.copy("f", "g"),
  async ({ sandbox }) => await sandbox.files.remove("f"),
  async ({ sandbox }) => await sandbox.files.chmod("f", 0o644),
  async ({ sandbox }) => await first(sandbox.files.watch(".")),
  async ({ sandbox }) => await first(sandbox.files.search({ name: "*" })),
  async ({ sandbox, empty }) => await sandbox.files.upload(empty, "."),
  async ({ sandbox, empty }) => await sandbox.files.download(".", join(empty, "new")),
  async ({ process }) => await first(process.logs()),
  async ({ process }) => await process.write("x"),
  async ({ process }) => await process.wait(),
  async ({ process }) => await process.cancel(),
  async ({ process }) => await process.signal("SIGTERM"),
  async ({ process }) => await process.resize({ rows: 1, columns: 1 }),
  async ({ sandbox }) => await sandbox.destroy(),
];

test("every operation of the server's document has a member", async () => {
  const document = (await (await fetch(new URL("/openapi.json", at.server.url))).json()) as {
    paths: Record<string, Record<string, unknown>>;
  };
  const offered = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
  );
  const empty = await mkdtemp(join(tmpdir(), "belljar-surface-"));
  await using client = new Belljar(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  try {
    const given = { client, sandbox: await client.sandboxes.get("s"), process: await client.process("p"), empty };
    for (const call of CALLS) {
      const before = noted.length;
      await call(given).catch(() => undefined);
      assert.ok(noted.length > before, `${call} asks for nothing`);
    }
  } finally {
    await rm(empty, { recursive: true });
  }
  const pattern = (operation: string): RegExp => new RegExp(`^${operation.replaceAll(/\{\w+\}/g, "[^/]+")}$`);
  const missing = offered.filter((operation) => !noted.some((asked) => pattern(operation).test(asked)));
  assert.deepEqual(missing.toSorted(), Object.keys(OTHERWISE).toSorted());
  // And nothing is asked for that the server does not have.
  const unknown = noted.filter((asked) => !offered.some((operation) => pattern(operation).test(asked)));
  assert.deepEqual(unknown, []);
});
