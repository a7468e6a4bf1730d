// A sandbox, a command, a program, a file. Prints what they said.
import { Belljar } from "belljar";

await using client = new Belljar();
await using sandbox = await client.sandboxes.create();

const { stdout, exitCode } = await sandbox.run("echo hello from $(uname -s)");
console.log(exitCode, stdout.trim());

await sandbox.files.write("numbers.txt", "1\n2\n3\n");
const sum = await sandbox.runPython("print(sum(int(line) for line in open('numbers.txt')))");
console.log("sum", sum.stdout.trim());
