// Losing the server in the middle of things.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { Belljar } from "belljar";
import { TestServer } from "./server.js";

test("a follow goes on through kills of the server, without lost or repeated bytes", async () => {
  const server = await TestServer.start();
  const client = new Belljar(server.url);
  try {
    const sandbox = await client.sandboxes.create();
    const lines = 3000;
    const process = await sandbox.start(
      `i=0; while [ $i -lt ${lines} ]; do echo line $i; i=$((i+1)); [ $((i % 20)) = 0 ] && sleep 0.02; done`,
      { timeout: 0 },
    );
    const hash = createHash("sha256");
    let size = 0;
    let kills = 0;
    for await (const { offset, data } of process) {
      assert.equal(offset, size);
      hash.update(data);
      size += data.length;
      if (kills < 3 && size > (kills + 1) * 4000) {
        kills += 1;
        await server.end("SIGKILL");
        await server.serve();
      }
    }
    const expected = Array.from({ length: lines }, (_, index) => `line ${index}\n`).join("");
    assert.equal(kills, 3);
    assert.equal(size, expected.length);
    assert.equal(hash.digest("hex"), createHash("sha256").update(expected).digest("hex"));
    assert.equal(process.exitCode, 0);
  } finally {
    client.close();
    await server.stop();
  }
});

test("a command that is waited for ends once, though the server was killed meanwhile", async () => {
  const server = await TestServer.start();
  const client = new Belljar(server.url);
  try {
    const sandbox = await client.sandboxes.create();
    const running = sandbox.run(
      "echo x >> /tmp/times; while [ ! -e /tmp/go ]; do sleep 0.05; done; wc -l < /tmp/times",
    );
    while (!(await sandbox.files.exists("/tmp/times")));
    await server.end("SIGKILL");
    await server.serve();
    await sandbox.files.write("/tmp/go", "");
    assert.equal((await running).stdout, "1\n");
    const following = (async () => {
      for await (const event of client.events({ sandbox: sandbox.id, since: 0 })) {
        if (event.kind === "sandbox_paused") return event.seq;
      }
      return 0;
    })();
    await server.end("SIGTERM");
    await server.serve();
    await sandbox.pause();
    assert.ok((await following) > 0);
  } finally {
    client.close();
    await server.stop();
  }
});
