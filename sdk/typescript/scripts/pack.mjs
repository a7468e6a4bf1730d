// Makes the packages that are published: `belljar`, and one for the platform of a binary, which carries it.
//
//   node scripts/pack.mjs BELLJAR OUT [--fast]
//
// The main package names the platform packages as optional dependencies: npm installs the one that fits and leaves out
// the others, so nothing has to run after the installation. `--fast` compresses less.
import { execFileSync } from "node:child_process";
import { chmod, copyFile, cp, mkdir, mkdtemp, open, readFile, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

/** Every platform that a binary is built for. */
const PLATFORMS = ["linux-x64", "linux-arm64"];
/** What the header of a program says of its machine. */
const MACHINES = new Map([
  [0x3e, "x64"],
  [0xb7, "arm64"],
]);

const [binary, out, fast] = process.argv.slice(2);
if (!out) throw new Error("usage: pack.mjs BELLJAR OUT [--fast]");
const root = fileURLToPath(new URL("..", import.meta.url));
const manifest = JSON.parse(await readFile(join(root, "package.json"), "utf8"));
const stage = await mkdtemp(join(tmpdir(), "belljar-pack-"));
try {
  await mkdir(out, { recursive: true });
  await main(join(stage, "main", "package"));
  await platform(join(stage, "platform", "package"));
} finally {
  await rm(stage, { recursive: true });
}

async function main(directory) {
  const tsc = createRequire(join(root, "package.json")).resolve("typescript/bin/tsc");
  execFileSync(process.execPath, [tsc, "--project", join(root, "tsconfig.json"), "--outDir", join(directory, "dist")], {
    stdio: "inherit",
  });
  // What only builds the package is of no use to those who install it.
  const { devDependencies: _tools, scripts: _scripts, ...published } = manifest;
  const optionalDependencies = Object.fromEntries(PLATFORMS.map((name) => [`@belljar/${name}`, manifest.version]));
  await writeFile(join(directory, "package.json"), JSON.stringify({ ...published, optionalDependencies }, null, 2));
  await texts(directory, ["README.md"]);
  pack(directory, `belljar-${manifest.version}.tgz`);
}

async function platform(directory) {
  const name = `linux-${await machine(binary)}`;
  await mkdir(directory, { recursive: true });
  await copyFile(binary, join(directory, "belljar"));
  await chmod(join(directory, "belljar"), 0o755);
  const [os, cpu] = name.split("-");
  const described = {
    name: `@belljar/${name}`,
    version: manifest.version,
    description: `The program of belljar for ${os} on ${cpu}`,
    license: manifest.license,
    os: [os],
    cpu: [cpu],
    libc: ["glibc"],
    files: ["belljar"],
  };
  await writeFile(join(directory, "package.json"), JSON.stringify(described, null, 2));
  await texts(directory, []);
  pack(directory, `belljar-${name}-${manifest.version}.tgz`);
}

async function texts(directory, names) {
  for (const name of names) await cp(join(root, name), join(directory, name));
  const license = join(root, "../../LICENSE");
  await cp(license, join(directory, "LICENSE")).catch((error) => {
    if (error.code !== "ENOENT") throw error;
  });
}

async function machine(path) {
  const file = await open(path);
  try {
    const { buffer } = await file.read(Buffer.alloc(20), 0, 20, 0);
    const found = buffer.toString("latin1", 1, 4) === "ELF" ? MACHINES.get(buffer.readUInt16LE(18)) : undefined;
    if (found === undefined) throw new Error(`\`${path}\` is no program for a platform that is known here`);
    return found;
  } finally {
    await file.close();
  }
}

/** The same input makes the same package, to the byte. */
function pack(directory, name) {
  const level = fast === "--fast" ? "-1" : "-9";
  const words = [
    "--sort=name",
    "--mtime=@0",
    "--owner=0",
    "--group=0",
    "--numeric-owner",
    `--use-compress-program=gzip -n ${level}`,
  ];
  execFileSync("tar", [...words, "-cf", join(resolve(out), name), "-C", join(directory, ".."), "package"]);
  console.log(name);
}
