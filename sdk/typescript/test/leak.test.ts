// Many sandboxes through one client leave nothing behind: no memory, no descriptors, no listeners, no sandboxes.
import assert from "node:assert/strict";
import { readdir } from "node:fs/promises";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { useServer } from "./server.js";

const at = useServer();

/** 2,000 take minutes where others work too. */
const ROUNDS = Number(process.env["BELLJAR_TEST_LEAK_ROUNDS"] ?? 100);
const AT_ONCE = 4;
/** What the engine of the language keeps for itself, and by round. */
const MOST_GROWTH = 6 << 20;

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

async function descriptors(pid: number | "self"): Promise<number> {
  return (await readdir(`/proc/${pid}/fd`)).length;
}

function heap(): number {
  collect();
  collect();
  return process.memoryUsage().heapUsed;
}

test(`${ROUNDS} sandboxes made, used and destroyed`, async (t) => {
  const { client } = at;
  const signal = new AbortController().signal;
  const round = async (): Promise<void> => {
    await using sandbox = await client.sandboxes.create({ signal });
    assert.equal((await sandbox.run("echo hi", { signal })).stdout, "hi\n");
    await sandbox.files.write("a", "b", { signal });
    const process = await sandbox.start("echo one; echo two", { signal });
    for await (const _ of process.logs({ follow: true, signal })) break;
  };
  const rounds = async (count: number): Promise<void> => {
    let left = count;
    await Promise.all(
      Array.from({ length: AT_ONCE }, async () => {
        while (left-- > 0) await round();
      }),
    );
  };
  await rounds(20);
  const server = (await client.server()).pid;
  const before = { here: await descriptors("self"), there: await descriptors(server), heap: heap() };
  await rounds(ROUNDS);
  const after = { here: await descriptors("self"), there: await descriptors(server), heap: heap() };
  t.diagnostic(JSON.stringify({ before, after }));
  assert.ok(after.here <= before.here + AT_ONCE, "descriptors of the client");
  assert.ok(after.there <= before.there + 20, "descriptors of the server");
  assert.ok(after.heap <= before.heap + MOST_GROWTH, "memory of the client");
  assert.deepEqual(await client.sandboxes.list(), []);
});
