import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { NotEnforceableError, InvalidArgumentError, defineSandbox, fs, network, rootfs } from "belljar";
import { failureOf, useServer } from "./server.js";

const at = useServer();

test("a definition is booted as often as wanted, and each ends with its block", async () => {
  const definition = defineSandbox({
    rootfs: rootfs.builtIn("host"),
    resources: { memory: "128MiB", cpus: 1, pids: 50 },
    network: network.none(),
    env: { KIND: "defined" },
    client: at.client,
  });
  let ids: string[] = [];
  {
    await using one = await definition.boot({ cwd: "/tmp" });
    await using two = await definition.boot({
      mounts: {
        "/workspace/src": fs.memory({
          files: { "/main.py": "print('from memory')", "deep/data": new Uint8Array([0, 255]) },
        }),
        "/tmp/it's empty": fs.memory({ files: {} }),
      },
    });
    ids = [one.sandbox.id, two.sandbox.id];
    assert.notEqual(ids[0], ids[1]);
    assert.equal((await one.exec("pwd; echo $KIND")).stdout, "/tmp\ndefined\n");
    assert.equal(one.sandbox.info.limits?.memoryBytes, 128 * 1024 * 1024);
    assert.equal((await two.exec("printf", ["%s.", "a b", "c"], { timeout: 60 })).stdout, "a b.c.");
    assert.equal((await two.exec("python3 src/main.py")).stdout, "from memory\n");
    assert.deepEqual(Array.from(await two.fs.read("/workspace/src/deep/data")), [0, 255]);
    assert.equal((await two.exec("ls", ["-A", "/tmp/it's empty"])).exitCode, 0);
    const process = await two.spawn(["cat"], { stdin: "spawned" });
    assert.equal(await process.text(), "spawned");
    const terminal = await two.pty("test -t 0 && echo a terminal");
    assert.equal(await terminal.text(), "a terminal\r\n");
  }
  for (const id of ids) assert.equal((await at.client.sandboxes.get(id)).info.state, "destroyed");
});

test("directories of the host are bound, read-only unless told otherwise", async () => {
  const here = await mkdtemp(join(tmpdir(), "belljar-bind-"));
  try {
    await writeFile(join(here, "given"), "from the host", { mode: 0o644 });
    const definition = defineSandbox({ client: at.client });
    await using lane = await definition.boot({ mounts: { "/workspace/data": fs.bind({ source: here }) } });
    assert.equal((await lane.exec("cat data/given")).stdout, "from the host");
    assert.notEqual((await lane.exec("echo x > data/given", { user: "root" })).exitCode, 0);
    assert.equal(await readFile(join(here, "given"), "utf8"), "from the host");
    for (const mounts of [
      { relative: fs.bind({ source: here }) },
      { "/workspace": fs.memory({ files: { "../escape": "x" } }) },
      { "/data": fs.memory({ files: { x: "y" } }) },
      { "/workspace/../data": fs.memory({ files: { x: "y" } }) },
    ]) {
      assert.ok((await failureOf(definition.boot({ mounts }))) instanceof InvalidArgumentError);
    }
    const masked = { "/workspace/data": fs.bind({ source: here, masks: ["given"] }) };
    assert.ok((await failureOf(definition.boot({ mounts: masked }))) instanceof NotEnforceableError);
  } finally {
    await rm(here, { recursive: true });
  }
});
