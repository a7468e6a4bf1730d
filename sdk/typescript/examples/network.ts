// What a sandbox may reach: named, changed while it runs, and on record.
import { Belljar } from "belljar";

await using client = new Belljar();
await using sandbox = await client.sandboxes.create({ allow: ["example.com"] });
await sandbox.run("getent hosts tracker.example");
for await (const { host, verdict, reason } of sandbox.network.log()) console.log(host, verdict, reason);
const { allow } = await sandbox.network.allow("*.example.org");
console.log(allow.sort().join(" "));
