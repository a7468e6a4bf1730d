// What the README promises first is true: its program runs as it is.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { environment, useServer } from "./server.js";

const at = useServer();

/** As much of the compiler as is used here; it is there where the tests were compiled. */
interface Compiler {
  transpile(source: string, options: { target: number; module: number }): string;
  ScriptTarget: { ES2022: number };
  ModuleKind: { ESNext: number };
}

test("the first program of the README", async () => {
  const ts = createRequire(import.meta.url)("typescript") as Compiler;
  const page = await readFile(new URL("../../README.md", import.meta.url), "utf8");
  const program = /^```ts\n(.*?)^```/ms.exec(page)?.[1];
  assert.ok(program);
  const options = { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext };
  const file = fileURLToPath(new URL(`readme-${process.pid}.js`, import.meta.url));
  await writeFile(file, ts.transpile(`${program}\nconsole.log(stdout, sum.stdout);\n`, options));
  try {
    const env = { ...environment(), BELLJAR_SERVER: at.server.url };
    const { stdout } = await promisify(execFile)(process.execPath, [file], { env, timeout: 120_000 });
    assert.equal(stdout, "hello\n 6\n\n");
  } finally {
    await rm(file);
  }
});
