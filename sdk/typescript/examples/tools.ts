// A function of this program that code in the sandbox calls, without a network and without a credential.
import { Belljar, tool } from "belljar";

const prices = new Map([
  ["tea", 3],
  ["cake", 5],
]);
const price = tool<{ item: string }>({
  description: "What an item costs.",
  schema: { type: "object", properties: { item: { type: "string" } }, required: ["item"], additionalProperties: false },
  run: ({ item }) => {
    const found = prices.get(item);
    if (found === undefined) throw new Error(`nobody sells ${item}`);
    return found;
  },
});

await using client = new Belljar();
await using sandbox = await client.sandboxes.create({
  policy: { document: { name: "shop", version: "1.0", defaults: { action: "allow" }, tool_allowlist: ["price"] } },
  tools: { price },
});

const { stdout } = await sandbox.runPython(`
from belljar_tools import ToolError, call
print(call("price", item="tea") + call("price", item="cake"))
try:
    call("price", item="moon")
except ToolError as error:
    print(error)
`);
console.log(stdout.trim());
