// A function-calling loop as with a model behind an API, here with a model that is played by a function: what it writes
// runs in a sandbox, and what came out goes back to it.
import { Belljar } from "belljar";

interface Message {
  readonly role: "user" | "assistant" | "tool";
  readonly content: string;
  readonly call?: { readonly name: "run_python"; readonly arguments: string };
}

/** Stands in for a model: asks for a calculation first, then answers with its result. */
function model(messages: readonly Message[]): Message {
  const result = messages.findLast(({ role }) => role === "tool");
  if (result !== undefined) return { role: "assistant", content: `The 20th Fibonacci number is ${result.content}.` };
  const code = "a, b = 0, 1\nfor _ in range(20): a, b = b, a + b\nprint(a)";
  return { role: "assistant", content: "", call: { name: "run_python", arguments: JSON.stringify({ code }) } };
}

await using client = new Belljar();
await using sandbox = await client.sandboxes.create({ timeout: 10, limits: { memory: "256MiB" } });

const messages: Message[] = [{ role: "user", content: "What is the 20th Fibonacci number?" }];
for (;;) {
  const answer = model(messages);
  messages.push(answer);
  if (answer.call === undefined) break;
  const { code } = JSON.parse(answer.call.arguments) as { code: string };
  const { stdout, stderr, exitCode } = await sandbox.runPython(code);
  messages.push({ role: "tool", content: exitCode === 0 ? stdout.trim() : stderr });
}
console.log(messages.at(-1)?.content);
