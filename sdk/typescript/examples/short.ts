// One sandbox and no client: the short way.
import { Sandbox } from "belljar";

await using sandbox = await new Sandbox(process.env["BELLJAR_SERVER"]).create();
await sandbox.writeFile("greet.py", "import sys\nprint('hello', *sys.argv[1:])\n");
for await (const { channel, data } of sandbox.execStream(["python3", "greet.py", "world"])) {
  console.log(channel, Buffer.from(data).toString().trim());
}
console.log((await sandbox.readFile("greet.py")).length, "characters");
