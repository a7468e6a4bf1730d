// Functions of this process, called from inside a real sandbox.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Belljar, type ToolContext, tool } from "belljar";
import { useServer } from "./server.js";

const at = useServer();

const policy = {
  document: {
    name: "tools",
    version: "1.0",
    defaults: { action: "allow" },
    tool_allowlist: ["add", "fail", "slow", "echo"],
  },
};

const add = tool<{ a: number; b: number }>({
  description: "Adds two numbers.",
  schema: {
    type: "object",
    properties: { a: { type: "number" }, b: { type: "number" } },
    required: ["a", "b"],
    additionalProperties: false,
  },
  run: ({ a, b }) => a + b,
});

test("programs inside call functions of this process, by allowed names only", async () => {
  const seen: ToolContext[] = [];
  await using sandbox = await at.client.sandboxes.create({
    policy,
    tools: {
      add,
      echo: {
        run: async (args: { word: string }, context) => (
          seen.push(context),
          await Promise.resolve({ said: args.word })
        ),
      },
      fail: {
        run: () => {
          throw new Error("it went wrong");
        },
      },
      hidden: { run: () => "never" },
    },
  });
  assert.equal((await sandbox.run(`belljar-tool call add '{"a": 2, "b": 40}'`)).stdout.trim(), "42");
  assert.equal(
    (await sandbox.runPython("from belljar_tools import call\nprint(call('echo', word='grüße')['said'])")).stdout,
    "grüße\n",
  );
  assert.equal(seen[0]?.sandboxId, sandbox.id);
  const refused = async (line: string, code: string): Promise<void> => {
    const { exitCode, stderr } = await sandbox.run(`belljar-tool call ${line}`);
    assert.notEqual(exitCode, 0, line);
    assert.match(stderr, new RegExp(code), line);
  };
  await refused(`add '{"a": 2}'`, "invalid-argument");
  await refused("fail", "it went wrong");
  await refused("hidden '{}'", "tool-not-found");
  await refused("slow '{}'", "tool-unavailable");
  const listed = JSON.parse((await sandbox.run("belljar-tool list")).stdout) as { name: string; description: string }[];
  assert.deepEqual(listed.map(({ name }) => name).sort(), ["add", "echo", "fail"]);
});

test(
  "many calls at once each get their own answer, also after the server was killed",
  { timeout: 180_000 },
  async () => {
    await using sandbox = await at.client.sandboxes.create({ policy, tools: { add } });
    const program = `
from belljar_tools import call
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(16) as pool:
    print(sum(pool.map(lambda n: call("add", a=n, b=n) == 2 * n, range(200))))
`;
    assert.equal((await sandbox.runPython(program)).stdout, "200\n");
    await at.server.end("SIGKILL");
    await at.server.serve();
    // Nobody answers until we are back.
    while ((await sandbox.run(`belljar-tool call add '{"a": 1, "b": 1}'`)).exitCode !== 0);
    assert.equal((await sandbox.runPython(program)).stdout, "200\n");
  },
);

test(
  "who no longer waits is told to the function, and a client that is gone answers nothing",
  { timeout: 180_000 },
  async () => {
    const client = new Belljar(at.server.url);
    const sandbox = await client.sandboxes.create({ policy });
    let stopped: () => void = () => undefined;
    const aborted = new Promise<void>((resolve) => (stopped = resolve));
    await sandbox.serveTools({
      slow: {
        run: async (_: object, { signal }) =>
          await new Promise((_resolve, reject) =>
            signal.addEventListener("abort", () => (stopped(), reject(new Error("late")))),
          ),
      },
    });
    assert.equal((await sandbox.run("timeout 0.5 belljar-tool call slow '{}'")).exitCode, 124);
    await aborted;
    const same = await at.client.sandboxes.get(sandbox.id);
    client.close();
    let said = "";
    while (!said.includes("tool-unavailable")) said = (await same.run("timeout 2 belljar-tool call slow '{}'")).stderr;
    await same.destroy();
  },
);
