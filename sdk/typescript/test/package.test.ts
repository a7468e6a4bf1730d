// The packages as they are published, installed into an empty project without a network.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { access, copyFile, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { BINARY, cleanUp, environment } from "./server.js";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));

const PROGRAM = `
  import { Belljar, SandboxNotFoundError } from "belljar";
  await using client = new Belljar();
  await using sandbox = await client.sandboxes.create();
  const answer: string = (await sandbox.run(["echo", "installed"])).stdout;
  console.log(answer.trim());
  await client.sandboxes.get("nobody").catch((error: unknown) => {
    if (error instanceof SandboxNotFoundError) console.log(error.code);
  });
`;

test("an empty project installs the packages offline, and has a sandbox", async () => {
  const here = await mkdtemp(join(tmpdir(), "belljar-package-"));
  const project = join(here, "project");
  const stateDir = join(here, "state");
  try {
    // Symbols would only make the test slow.
    const binary = join(here, "belljar");
    await run("strip", ["-o", binary, BINARY]).catch(async () => await copyFile(BINARY, binary));
    await run(process.execPath, [join(root, "scripts/pack.mjs"), binary, here, "--fast"]);
    await mkdir(project);
    await writeFile(join(project, "package.json"), JSON.stringify({ name: "empty", private: true, type: "module" }));
    const packages = ["belljar-0.1.0.tgz", `belljar-linux-${process.arch}-0.1.0.tgz`].map((name) => join(here, name));
    const offline = ["install", "--offline", "--no-audit", "--no-fund", "--cache", join(here, "cache"), ...packages];
    await run("npm", offline, { cwd: project, env: environment() });

    const manifest = JSON.parse(await readFile(join(project, "node_modules/belljar/package.json"), "utf8")) as Record<
      string,
      unknown
    >;
    assert.equal(manifest["scripts"], undefined);
    assert.equal(manifest["dependencies"], undefined);
    await assert.rejects(access(join(project, "node_modules/belljar/src")));

    // The types are good for a strict project.
    await writeFile(join(project, "program.ts"), PROGRAM);
    const require = createRequire(import.meta.url);
    const types = dirname(dirname(require.resolve("@types/node/package.json")));
    const strict = [
      "--strict",
      "--target",
      "ES2022",
      "--lib",
      "ES2023,ESNext.Disposable",
      "--module",
      "NodeNext",
      "--typeRoots",
      types,
      "--types",
      "node",
    ];
    await run(process.execPath, [require.resolve("typescript/bin/tsc"), ...strict, "program.ts"], { cwd: project });

    // Nothing but the package has the program.
    const env = { ...environment(), PATH: "/usr/bin:/bin:/usr/sbin:/sbin", BELLJAR_STATE_DIR: stateDir };
    const { stdout } = await run(process.execPath, ["program.js"], { cwd: project, env, timeout: 180_000 });
    assert.equal(stdout, "installed\nsandbox-not-found\n");
  } finally {
    await cleanUp(stateDir);
    await rm(here, { recursive: true });
  }
});
