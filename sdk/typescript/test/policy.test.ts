// Sandboxes under a policy: what it says counts, and a refusal says which rule said it.
import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { InvalidPolicyError, type PolicyChoice, PolicyDeniedError } from "belljar";
import { failureOf, useServer } from "./server.js";

const at = useServer();

const DOCUMENT = {
  name: "no-curl",
  version: "1.0",
  defaults: { action: "allow", max_memory_mb: 128 },
  rules: [
    {
      name: "no-curl",
      condition: { field: "command", operator: "contains", value: "curl" },
      action: "deny",
      message: "ask for a tool instead",
    },
  ],
};

test("text, objects, files and names say the same", async () => {
  const here = await mkdtemp(join(tmpdir(), "belljar-policy-"));
  try {
    const file = join(here, "policy.json");
    await writeFile(file, JSON.stringify(DOCUMENT));
    const kept = await at.client.policies.put("kept", { document: DOCUMENT });
    assert.equal(kept.version, 1);
    assert.deepEqual(
      (await at.client.policies.list()).map(({ name }) => name),
      ["kept"],
    );
    const digests = new Set<string>();
    const choices: PolicyChoice[] = [
      JSON.stringify(DOCUMENT),
      { document: DOCUMENT },
      { file },
      "kept",
      "kept@1",
      { name: "kept" },
    ];
    for (const policy of choices) {
      await using sandbox = await at.client.sandboxes.create({ policy });
      digests.add(sandbox.info.policy?.digest ?? "");
      assert.equal(sandbox.info.limits?.memoryBytes, 128 << 20);
      assert.equal((await sandbox.run("echo fine")).stdout, "fine\n");
      const denied = await failureOf(sandbox.run("curl http://x"));
      assert.ok(denied instanceof PolicyDeniedError);
      assert.equal(denied.decision?.rule, "no-curl");
      assert.equal(denied.decision?.message, "ask for a tool instead");
    }
    assert.equal(digests.size, 1);
    await at.client.policies.remove("kept");
    assert.deepEqual(await at.client.policies.list(), []);
  } finally {
    await rm(here, { recursive: true });
  }
});

test("what is no policy is refused with its place", async () => {
  const wrong = await failureOf(at.client.sandboxes.create({ policy: "name: x\nrules: 7\n" }));
  assert.ok(wrong instanceof InvalidPolicyError, String(wrong));
  assert.match(`${wrong.message} ${String(wrong.cause)}`, /2/);
  assert.equal(
    (await failureOf(at.client.sandboxes.create({ policy: { file: "/no/such/file" } }))).code,
    "invalid-argument",
  );
});
