// Prepare once, then start from there as often as wanted: each sandbox is its own.
import { Belljar } from "belljar";

await using client = new Belljar();
const prepared = await client.sandboxes.create();
await prepared.run("mkdir project && echo 'the state of things' > project/state.txt");
const { snapshotId } = await prepared.snapshot({ labels: { example: "snapshots" } });
await prepared.destroy();

for (const attempt of ["one", "two"]) {
  await using fork = await client.snapshots.restore(snapshotId);
  await fork.run(`echo attempt ${attempt} >> project/state.txt`);
  process.stdout.write(await fork.files.readText("project/state.txt"));
}
await client.snapshots.remove(snapshotId);
