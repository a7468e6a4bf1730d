// A sandbox under a policy: what it denies is an error that names the rule.
import { Belljar, PolicyDeniedError } from "belljar";

const policy = `
name: careful
version: "1.0"
defaults: {action: allow, max_memory_mb: 256}
rules:
  - name: no-removal
    condition: {field: command, operator: matches, value: 'rm\\s+-rf'}
    action: deny
    message: move it away instead
`;

await using client = new Belljar();
await using sandbox = await client.sandboxes.create({ policy });
console.log((await sandbox.run("echo allowed")).stdout.trim());
await sandbox.run("rm -rf /workspace").catch((error: unknown) => {
  if (error instanceof PolicyDeniedError) console.log(error.decision?.rule, "-", error.decision?.message);
});
