import assert from "node:assert/strict";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { InvalidArgumentError, MountSourceUnusableError, defineSandbox, fs, network, rootfs } from "belljar";
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
    for (const mask of ["../given", "", ".", "missing", "given/below"]) {
      const mounts = { "/workspace/data": fs.bind({ source: here, masks: [mask] }) };
      const failure = await failureOf(definition.boot({ mounts }));
      assert.ok(failure instanceof InvalidArgumentError || failure instanceof MountSourceUnusableError, mask);
    }
  } finally {
    await rm(here, { recursive: true });
  }
});

test("what a bind masks is not seen inside, and stays as it is outside", async () => {
  const here = await mkdtemp(join(tmpdir(), "belljar-mask-"));
  try {
    await mkdir(join(here, "secrets"));
    await writeFile(join(here, "secrets", "key"), "only for the host");
    await writeFile(join(here, ".env"), "only for the host");
    await writeFile(join(here, "open"), "for everybody", { mode: 0o644 });
    const definition = defineSandbox({ client: at.client });
    const bind = { source: here, access: "rw" } as const;
    const see = "cd /data && cat .env secrets/key open; ls secrets";
    await using plain = await definition.boot({ mounts: { "/data": fs.bind(bind) } });
    assert.match((await plain.exec(see, { user: "root" })).stdout, /^only for the hostonly for the hostfor everybodykey\n$/);
    await using lane = await definition.boot({
      mounts: { "/data": fs.bind({ ...bind, masks: [".env", "secrets/"] }) },
    });
    assert.equal((await lane.exec(see, { user: "root" })).stdout, "for everybody");
    assert.equal(await lane.fs.readText("/data/.env"), "");
    for (const line of ["rm -f /data/.env", "mv /data/secrets /data/x", "echo x > /data/secrets/new"]) {
      assert.notEqual((await lane.exec(line, { user: "root" })).exitCode, 0, line);
    }
    assert.equal(await readFile(join(here, ".env"), "utf8"), "only for the host");
    assert.equal(await readFile(join(here, "secrets", "key"), "utf8"), "only for the host");
  } finally {
    await rm(here, { recursive: true });
  }
});
