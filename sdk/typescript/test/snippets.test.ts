// What the pages show compiles: every piece of TypeScript in the README and the guide, under the package's own rules.
import assert from "node:assert/strict";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { basename, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

/** As much of the compiler as is used here; it is there where the tests were compiled. */
interface Compiler {
  readConfigFile(path: string, read: (path: string) => string | undefined): { config: { compilerOptions: object } };
  convertCompilerOptionsFromJson(options: object, base: string): { options: object };
  createProgram(files: readonly string[], options: object): unknown;
  getPreEmitDiagnostics(program: unknown): readonly Diagnostic[];
  flattenDiagnosticMessageText(text: unknown, newLine: string): string;
  sys: { readFile(path: string): string | undefined };
}
interface Diagnostic {
  readonly file?: { readonly fileName: string };
  readonly messageText: unknown;
}

const tree = fileURLToPath(new URL("../../", import.meta.url));
const pages = [join(tree, "README.md"), ...(process.env["BELLJAR_TEST_GUIDE"] ? [process.env["BELLJAR_TEST_GUIDE"]] : [])];

/** What a piece may count on, if it does not make it by itself: the names of the pieces before it. */
const GIVEN: Record<string, string> = {
  client: "Belljar",
  sandbox: "Sandbox",
  process: "Process",
  somewhere: "WritableStream<Uint8Array>",
  token: "() => Promise<string>",
  weather: "(city: string, signal: AbortSignal) => Promise<string>",
  connect: "(address: { host: string; port: number }) => void",
  policy: "string",
};
const VALUES = ["Belljar", "Sandbox", "defineSandbox", "errors", "fs", "network", "rootfs", "tool"];

function programOf(piece: string): string {
  const lines = piece.replaceAll("…", "").split("\n");
  const imports = lines.filter((line) => line.startsWith("import "));
  const body = lines.filter((line) => !line.startsWith("import ")).join("\n");
  const makes = (name: string): boolean => new RegExp(`\\b(const|using|let) (\\{[^}]*\\b)?${name}\\b`).test(body);
  const given = Object.entries(GIVEN).filter(([name]) => !makes(name));
  return [
    ...imports,
    'import * as belljar from "belljar";',
    'import type { Belljar as Client, Sandbox as Box, Process } from "belljar";',
    ...VALUES.filter((name) => !imports.some((line) => new RegExp(`\\b${name}\\b`).test(line))).flatMap((name) =>
      new RegExp(`\\b${name}\\b`).test(body) && !makes(name) ? [`const { ${name} } = belljar;`] : [],
    ),
    `export async function piece(${given
      .map(([name, type]) => `${name}: ${type.replace("Belljar", "Client").replace("Sandbox", "Box")}`)
      .join(", ")}): Promise<void> {`,
    body,
    "}",
  ].join("\n");
}

test("the pieces of TypeScript on the pages compile", async () => {
  const ts = createRequire(import.meta.url)("typescript") as Compiler;
  const directory = join(tree, `pieces-${process.pid}`);
  await mkdir(directory);
  try {
    const files: string[] = [];
    for (const page of pages) {
      const found = [...(await readFile(page, "utf8")).matchAll(/^```ts\n(.*?)^```/gms)];
      assert.ok(found.length > 0, page);
      for (const [index, [, piece]] of found.entries()) {
        const file = join(directory, `${basename(page, ".md")}-${index + 1}.ts`);
        await writeFile(file, programOf(piece ?? ""));
        files.push(file);
      }
    }
    const { config } = ts.readConfigFile(join(tree, "tsconfig.json"), ts.sys.readFile);
    const own = { noUnusedLocals: false, noUnusedParameters: false, noEmit: true, rootDir: "." };
    const paths = { belljar: ["./src/index.ts"] };
    const { options } = ts.convertCompilerOptionsFromJson({ ...config.compilerOptions, ...own, paths }, tree);
    const wrong = ts.getPreEmitDiagnostics(ts.createProgram(files, options)).map(({ file, messageText }) => {
      return `${file === undefined ? "" : basename(file.fileName)}: ${ts.flattenDiagnosticMessageText(messageText, "\n")}`;
    });
    assert.deepEqual(wrong, []);
  } finally {
    await rm(directory, { recursive: true });
  }
});
