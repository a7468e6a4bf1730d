import assert from "node:assert/strict";
import { test } from "node:test";
import { Belljar, ProcessEndedError, ProcessNotFoundError, TimedOutError } from "belljar";
import { failureOf, useServer } from "./server.js";

const at = useServer();

test("output comes as it is written, per channel with offsets", async () => {
  await using sandbox = await at.client.sandboxes.create();
  const process = await sandbox.start('printf abc; printf de >&2; read line; printf "got $line"', { stdin: true });
  const seen = { stdout: "", stderr: "" };
  for await (const { channel, offset, data } of process) {
    assert.equal(offset, seen[channel].length);
    seen[channel] += Buffer.from(data).toString();
    // What comes next is only written once this was seen.
    if (seen.stdout === "abc" && seen.stderr === "de") await process.write("it\n");
  }
  assert.deepEqual(seen, { stdout: "abcgot it", stderr: "de" });
  assert.equal(process.exitCode, 0);
  assert.equal(process.info.reason, "exited");
  let rest = "";
  for await (const { offset, data } of process.logs({ since: { stdout: 3 }, channel: "stdout" })) {
    assert.equal(offset, 3);
    rest += Buffer.from(data).toString();
  }
  assert.equal(rest, "got it");
});

test("another client attaches, waits, types and ends", async () => {
  await using sandbox = await at.client.sandboxes.create();
  const started = await sandbox.start(["cat"], { stdin: true, timeout: 0 });
  const other = new Belljar(at.server.socket);
  const process = await other.process(started.id);
  assert.equal(process.sandboxId, sandbox.id);
  assert.ok((await failureOf(process.wait({ timeout: 0.1 }))) instanceof TimedOutError);
  await Promise.all(["one ", "two ", "three"].map(async (word) => await started.write(word)));
  await process.closeInput();
  assert.equal((await started.wait()).exitCode, 0);
  assert.equal(await process.text(), "one two three");
  assert.ok((await failureOf(process.write("late"))) instanceof ProcessEndedError);
  assert.ok((await failureOf(other.process("pnope"))) instanceof ProcessNotFoundError);
  other.close();
});

test("signals and cancellation", async () => {
  await using sandbox = await at.client.sandboxes.create();
  const trapped = await sandbox.start("trap 'echo caught; exit 7' USR1; echo ready; while :; do sleep 0.05; done");
  for await (const _ of trapped) break;
  await trapped.signal("SIGUSR1");
  assert.equal((await trapped.wait()).exitCode, 7);
  const stubborn = await sandbox.start("trap '' TERM; echo ready; while :; do sleep 1; done");
  for await (const _ of stubborn) break;
  const ended = await stubborn.cancel({ grace: 0.1 });
  assert.equal(ended.status, "cancelled");
});

test("a terminal has a size, echoes, and is resized", async () => {
  await using sandbox = await at.client.sandboxes.create();
  const shell = await sandbox.pty(["/bin/sh"], { size: { rows: 30, columns: 90 }, env: { PS1: "$ " } });
  let screen = "";
  const output = shell.logs({ follow: true });
  const until = async (text: string): Promise<void> => {
    while (!screen.includes(text)) {
      const next = await output.next();
      assert.ok(!next.done, screen);
      screen += Buffer.from(next.value.data).toString();
    }
  };
  await shell.write("stty size\n");
  await until("30 90");
  await shell.resize({ rows: 40, columns: 100 });
  await shell.write("stty size\n");
  await until("40 100");
  await shell.write("exit 5\n");
  for await (const _ of output);
  assert.equal((await shell.wait()).exitCode, 5);
});

test("web streams in and out", async () => {
  await using sandbox = await at.client.sandboxes.create();
  const process = await sandbox.start("tr a-z A-Z; echo done >&2", { stdin: true });
  const words = new Blob(["hello ", "streams"]).stream();
  await words.pipeTo(process.stdin);
  assert.equal(await new Response(process.stdout).text(), "HELLO STREAMS");
  assert.equal(await new Response(process.stderr).text(), "done\n");
  const endless = await sandbox.start("yes");
  const reader = endless.stdout.getReader();
  assert.match(Buffer.from((await reader.read()).value ?? []).toString(), /^y\n/);
  await reader.cancel();
  await endless.cancel({ grace: 0 });
});

test("what stands out in Python code is in the answer", async () => {
  await using sandbox = await at.client.sandboxes.create();
  assert.deepEqual((await sandbox.runPython("print(1)")).findings, []);
  const code = "import os\nos.system('true')";
  const found = [{ line: 2, column: 1, rule: "shell", name: "os.system" }];
  assert.deepEqual((await sandbox.runPython(code)).findings, found);
  const process = await sandbox.start(["python3", "-c", code]);
  assert.deepEqual(process.info.findings, found);
  assert.deepEqual((await process.wait()).findings, found);
});
