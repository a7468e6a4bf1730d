// The examples are run as a user would run them, and say what they promise.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readdir } from "node:fs/promises";
import { networkInterfaces } from "node:os";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { environment, useServer } from "./server.js";

const at = useServer();

const PROMISED: Record<string, string> = {
  quickstart: "0 hello from Linux\nsum 6\n",
  processes: "stdout heard one\nstdout heard two\nexit code 0\n",
  files: "found on line 1\nran 42\nrange answer\ndownloaded 1 file of 292 bytes\n",
  definition: "hello, Ada\nhello, Grace\n",
  short: "stdout hello world\n41 characters\n",
  terminal: "50 132\n",
  "function-calling": "The 20th Fibonacci number is 6765.\n",
  tools: "8\nnobody sells moon (tool-failed)\n",
  policy: "allowed\nno-removal - move it away instead\n",
  network: "tracker.example deny not-listed\n*.example.org example.com\n",
  snapshots: "the state of things\nattempt one\nthe state of things\nattempt two\n",
  ports: "Serving HTTP on 127.0.0.1\nfrom inside\n",
  "agent-with-key": "It has 3 lines.\n0 traces of the key\n",
  connections: "tracker.example deny callback-denies\n",
  cancel: "timed out: true 124\naborted: true\nsandbox-not-found - there is no sandbox `nobody`\n",
};

test("no example is forgotten", async () => {
  const there = (await readdir(new URL("../examples", import.meta.url))).filter((name) => name.endsWith(".js"));
  assert.deepEqual(there.map((name) => name.replace(".js", "")).sort(), Object.keys(PROMISED).sort());
});

/** Its model is on this machine, and loopback is the sandbox's own. */
const alone = !Object.values(networkInterfaces())
  .flat()
  .some((one) => one?.family === "IPv4" && !one.internal);

for (const [name, promised] of Object.entries(PROMISED)) {
  const skip = name === "agent-with-key" && alone && "this machine has no address but loopback";
  if (skip) console.log(`SKIPPED typescript example ${name}: ${skip}`);
  test(`example ${name}`, { skip }, async () => {
    const program = fileURLToPath(new URL(`../examples/${name}.js`, import.meta.url));
    const env = { ...environment(), BELLJAR_SERVER: at.server.url };
    const { stdout } = await promisify(execFile)(process.execPath, [program], { env, timeout: 120_000 });
    assert.equal(stdout, promised);
  });
}
