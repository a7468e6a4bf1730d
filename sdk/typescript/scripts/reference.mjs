// Writes the reference of the package's API from its declarations and their comments.
//
//   node scripts/reference.mjs FILE            write
//   node scripts/reference.mjs FILE --check    fail where the file is not what would be written
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const ts = createRequire(join(root, "package.json"))("typescript");
const [file, check] = process.argv.slice(2);
if (!file) throw new Error("usage: reference.mjs FILE [--check]");

const { options } = ts.parseJsonConfigFileContent(
  ts.readConfigFile(join(root, "tsconfig.json"), ts.sys.readFile).config,
  ts.sys,
  root,
);
const outDir = await mkdtemp(join(tmpdir(), "belljar-reference-"));
ts.createProgram([join(root, "src/index.ts")], { ...options, outDir, emitDeclarationOnly: true }).emit();
// A second program, over the declarations: what a user's editor shows. Only texts are of interest, not what they mean.
const entry = join(outDir, "index.d.ts");
const program = ts.createProgram([entry], { ...options, rootDir: outDir, types: [] });
const checker = program.getTypeChecker();
const exported = checker.getExportsOfModule(checker.getSymbolAtLocation(program.getSourceFile(entry)));

const names = new Map(
  exported.map((symbol) => [
    (symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol).name,
    symbol.name,
  ]),
);
const sections = { Classes: [], Functions: [], Values: [], Types: [], Errors: [] };
for (const symbol of exported) {
  const real = symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
  const node = real.declarations[0];
  sections[sectionOf(node)].push({ name: symbol.name, text: written(node, real.name, symbol.name) });
}

await rm(outDir, { recursive: true });

const parts = [
  "# TypeScript reference\n",
  "Generated from the declarations of `sdk/typescript` by its `scripts/reference.mjs`. The guide is [here](../guides/typescript.md).\n",
];
for (const [title, entries] of Object.entries(sections)) {
  parts.push(`## ${title}\n`);
  entries.sort((a, b) => (a.name < b.name ? -1 : 1));
  if (title === "Errors") {
    parts.push("One class for each [code](errors.md), all of them `BelljarError`s:\n");
    parts.push(`${entries.map(({ name }) => `\`${name}\``).join(", ")}.\n`);
    continue;
  }
  for (const { name, text } of entries) parts.push(`### ${name}\n\n\`\`\`ts\n${text}\n\`\`\`\n`);
}
const text = parts.join("\n");

if (check === "--check") {
  if ((await readFile(file, "utf8").catch(() => "")) !== text) {
    console.error(`\`${file}\` is not fresh: run \`node scripts/reference.mjs ${file}\` in sdk/typescript`);
    process.exitCode = 1;
  }
} else {
  await writeFile(file, text);
}

function sectionOf(node) {
  if (ts.isClassDeclaration(node)) {
    return node.getSourceFile().fileName.endsWith("generated/codes.d.ts") ? "Errors" : "Classes";
  }
  if (ts.isFunctionDeclaration(node)) return "Functions";
  return ts.isVariableDeclaration(node) ? "Values" : "Types";
}

function written(node, real, shown) {
  const whole = ts.isVariableDeclaration(node) ? node.parent.parent : node;
  return (
    whole
      .getFullText()
      .trim()
      .replace(/^export (declare )?/m, "")
      .replace(/^\s*#private;\n/m, "")
      // Names as they are exported.
      .replace(/\bapi\.(\w+)/g, (_, name) => names.get(name) ?? name)
      .replace(new RegExp(`\\b(class|interface|type) ${real}\\b`), `$1 ${shown}`)
  );
}
