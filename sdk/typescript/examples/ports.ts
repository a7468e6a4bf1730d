// A server inside, reached from here; the sandbox has no network.
import { Belljar } from "belljar";

await using client = new Belljar();
await using sandbox = await client.sandboxes.create({ files: { "page.txt": "from inside" } });
const server = await sandbox.start("exec python3 -u -m http.server --bind 127.0.0.1 8000", { timeout: 0 });
for await (const { data } of server) {
  console.log(Buffer.from(data).toString().split(" port")[0]);
  break;
}
await using forward = await sandbox.forward(8000);
const answer = await fetch(`http://${forward.host}:${forward.port}/page.txt`, { headers: { connection: "close" } });
console.log(await answer.text());
