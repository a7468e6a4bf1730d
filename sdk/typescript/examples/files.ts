// Files in and out: streams, ranges, trees, search.
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Belljar } from "belljar";

await using client = new Belljar();
await using sandbox = await client.sandboxes.create();
const here = await mkdtemp(join(tmpdir(), "belljar-example-"));
try {
  await writeFile(join(here, "main.py"), "# the answer\nprint(42)\n");
  await sandbox.files.upload(here, "project");
  for await (const hit of sandbox.files.search({ path: "project", content: "answer" })) {
    console.log("found on line", hit.line);
  }
  console.log("ran", (await sandbox.run("python3 project/main.py")).stdout.trim());
  console.log("range", await sandbox.files.readText("project/main.py", { offset: 6, length: 6 }));
  await sandbox.run("mkdir results && seq 100 > results/numbers");
  const report = await sandbox.files.download("results", join(here, "results"));
  console.log("downloaded", report.files, "file of", report.bytes, "bytes");
} finally {
  await rm(here, { recursive: true });
}
