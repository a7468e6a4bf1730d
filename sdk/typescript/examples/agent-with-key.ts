// An agent in a sandbox that asks its model over HTTP, without the key: this process adds it to the requests. Nothing
// else can be reached. The model is made up and served here, so that the example needs no network.
import http from "node:http";
import type { AddressInfo } from "node:net";
import { networkInterfaces } from "node:os";
import { defineSandbox, network } from "belljar";

const KEY = "a key that stays on the host";

const AGENT = `
import json, subprocess, sys, urllib.request

messages = [{"role": "user", "content": "How many lines has /workspace/notes.txt?"}]
while True:
    body = json.dumps({"model": "made-up", "messages": messages}).encode()
    answer = json.load(urllib.request.urlopen(sys.argv[1] + "/v1/chat/completions", body))
    message = answer["choices"][0]["message"]
    messages.append(message)
    if not message.get("tool_calls"):
        print(message["content"])
        break
    for call in message["tool_calls"]:
        line = json.loads(call["function"]["arguments"])["line"]
        done = subprocess.run(line, shell=True, capture_output=True, text=True)
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": done.stdout})
`;

/** Stands in for a model: wants the key, asks for one command, then tells what it said. */
const model = http.createServer(async (request, answer) => {
  const { messages } = JSON.parse(Buffer.concat(await request.toArray()).toString()) as {
    messages: { role: string; content: string }[];
  };
  const told = messages.at(-1);
  const shell = { name: "shell", arguments: JSON.stringify({ line: "wc -l < /workspace/notes.txt" }) };
  const message =
    told?.role === "user"
      ? { role: "assistant", tool_calls: [{ id: "1", function: shell }] }
      : { role: "assistant", content: `It has ${told?.content.trim()} lines.` };
  answer.statusCode = request.headers.authorization === `Bearer ${KEY}` ? 200 : 401;
  answer.end(JSON.stringify({ choices: [{ message }] }));
});

// Loopback would be the sandbox's own.
const address = Object.values(networkInterfaces())
  .flat()
  .find((one) => one?.family === "IPv4" && !one.internal)?.address;
if (address === undefined) throw new Error("this machine has no address but loopback");
await new Promise<void>((resolve) => model.listen(0, address, resolve));
const { port } = model.address() as AddressInfo;

const agent = defineSandbox({
  network: network.policy(
    (connection) => {
      // Only the model, and only as HTTP. Every request to it gets the key on its way out.
      if (connection.dst.port !== port) return connection.deny("not the model");
      connection.matchHttp(address)?.accept((request) => request.headers.set("authorization", `Bearer ${KEY}`));
    },
    // The model's address is not a public one here, and so it is named.
    { cidrs: [`${address}/32`] },
  ),
});

{
  await using lane = await agent.boot();
  await lane.fs.write("agent.py", AGENT);
  await lane.fs.write("notes.txt", "one\ntwo\nthree\n");
  process.stdout.write((await lane.exec("python3", ["agent.py", `http://${address}:${port}`])).stdout);
  const { stdout } = await lane.exec("env; cat /proc/*/environ 2>/dev/null");
  console.log(stdout.split(KEY).length - 1, "traces of the key");
}
model.close();
model.closeAllConnections();
