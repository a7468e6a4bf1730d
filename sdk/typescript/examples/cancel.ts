// Time-outs, cancellations and failures are three different things.
import { AbortedError, Belljar, SandboxNotFoundError } from "belljar";

await using client = new Belljar();
await using sandbox = await client.sandboxes.create({ timeout: 30 });

// A command that runs out of time is a result.
const late = await sandbox.run("sleep 60", { timeout: 0.2 });
console.log("timed out:", late.timedOut, late.exitCode);

// Who aborts gets an error, and the command ends.
const stop = new AbortController();
const running = sandbox.run("sleep 60", { signal: stop.signal });
stop.abort();
await running.catch((error: unknown) => console.log("aborted:", error instanceof AbortedError));

// What is not there has a class of its own, and says what to do.
await client.sandboxes.get("nobody").catch((error: unknown) => {
  if (error instanceof SandboxNotFoundError) console.log(error.code, "-", error.message);
});
