// A shell on a terminal: typed to, resized, read as a screen would.
import { Belljar } from "belljar";

await using client = new Belljar();
await using sandbox = await client.sandboxes.create();

const shell = await sandbox.pty(["/bin/sh"], { size: { rows: 24, columns: 80 } });
await shell.write("stty size\n");
await shell.resize({ rows: 50, columns: 132 });
await shell.write("stty size; exit\n");
const screen = await shell.text();
console.log(screen.match(/^\d+ \d+/gm)?.at(-1));
