// What credentials of a policy put into requests, over TLS, seen from both sides. Runs at the edge of a world of its own
// (`secrets.test.ts`): `secure.test` answers there, and `/digest` tells what arrived without saying it. Each step is told
// by a line.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { Belljar, type Sandbox } from "belljar";

const digest = (text: string): string => createHash("sha256").update(text).digest("hex");

function policy(source: object): { document: object } {
  const credential = { name: "api", source, host: "secure.test", inject: "bearer" };
  return {
    document: {
      name: "given",
      version: "1.0",
      defaults: { action: "allow" },
      network_allowlist: ["secure.test"],
      credentials: [credential],
    },
  };
}

async function get(sandbox: Sandbox, path: string): Promise<string> {
  const code = `
import urllib.request, urllib.error
try:
    print(urllib.request.urlopen("https://secure.test${path}", timeout=60).read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
`;
  const { stdout, stderr } = await sandbox.runPython(code, { timeout: 120 });
  assert.equal(stderr, "");
  return stdout.trim();
}

async function seenInside(sandbox: Sandbox, secret: string): Promise<boolean> {
  const { stdout } = await sandbox.run(
    "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null; grep -r . /etc /workspace",
  );
  return `${stdout}${await get(sandbox, "/headers")}`.includes(secret);
}

await using client = new Belljar();
{
  const values = ["first-value", "second-value", "third-value"];
  await using sandbox = await client.sandboxes.create({
    policy: policy({ callback: "token" }),
    secrets: {
      token: () => {
        const value = values.shift();
        if (value === undefined) throw new Error("there is no value left");
        return value;
      },
    },
  });
  assert.equal(await get(sandbox, "/digest"), digest("Bearer first-value"));
  assert.equal(await get(sandbox, "/digest"), digest("Bearer second-value"));
  assert.ok(!(await seenInside(sandbox, "third-value")));
  // From here on the function fails: the request is not sent without it, and why is nobody's business inside.
  const failed = await get(sandbox, "/digest");
  assert.ok(failed.startsWith("502 ") && !failed.includes("no value left"), failed);
  console.log("given");
}
{
  await client.secrets.set("kept", "a-kept-value");
  await using sandbox = await client.sandboxes.create({ policy: policy({ store: "kept" }) });
  assert.equal(await get(sandbox, "/digest"), digest("Bearer a-kept-value"));
  assert.ok(!(await seenInside(sandbox, "a-kept-value")));
  await client.secrets.set("kept", "a-newer-value");
  assert.equal(await get(sandbox, "/digest"), digest("Bearer a-newer-value"));
  await client.secrets.remove("kept");
  assert.match(await get(sandbox, "/digest"), /^502 /);
  console.log("kept");
}
