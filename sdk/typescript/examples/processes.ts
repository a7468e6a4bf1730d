// A process that is followed, typed to, and found again by somebody else.
import { Belljar } from "belljar";

await using client = new Belljar();
await using sandbox = await client.sandboxes.create();

const process = await sandbox.start('while read line; do echo "heard $line"; done', { stdin: true });
await process.write("one\n");
for await (const { channel, data } of process) {
  console.log(channel, Buffer.from(data).toString().trim());
  if (Buffer.from(data).toString().includes("one")) {
    // Any client that knows its id can go on with it.
    const same = await client.process(process.id);
    await same.write("two\n");
    await same.closeInput();
  }
}
console.log("exit code", process.exitCode);
