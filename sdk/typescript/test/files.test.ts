import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { chmod, lstat, mkdir, mkdtemp, readFile, readlink, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { ArchiveRefusedError, FileExistsError, FileKindWrongError, FileNotFoundError, TimedOutError } from "belljar";
import { ending, header, padding } from "../src/tar.js";
import { unpackTree } from "../src/tree.js";
import { failureOf, useServer } from "./server.js";

const at = useServer();

test("bytes, text, ranges and streams", async () => {
  await using sandbox = await at.client.sandboxes.create();
  const { files } = sandbox;
  const bytes = randomBytes(300_000);
  const info = await files.write("dir/data", bytes, { makeParents: true, permissions: 0o600 });
  assert.equal(info.size, bytes.length);
  assert.equal(info.mode, 0o600);
  assert.deepEqual(Buffer.from(await files.read("dir/data")), bytes);
  assert.deepEqual(Buffer.from(await files.read("dir/data", { offset: 1000, length: 77 })), bytes.subarray(1000, 1077));
  assert.deepEqual(Buffer.from(await files.read("dir/data", { offset: 299_990 })), bytes.subarray(299_990));
  assert.equal((await files.read("dir/data", { length: 0 })).length, 0);
  const streamed = await new Response(await files.readStream("dir/data")).arrayBuffer();
  assert.deepEqual(Buffer.from(streamed), bytes);
  async function* pieces(): AsyncGenerator<Uint8Array> {
    for (let at = 0; at < bytes.length; at += 10_000) yield bytes.subarray(at, at + 10_000);
  }
  await files.write("copy", pieces());
  assert.equal((await sandbox.run("cmp copy dir/data && echo same")).stdout, "same\n");
  await files.write("blob", new Blob(["grüße"]));
  await files.append("blob", new Response(" und mehr").body ?? "");
  assert.equal(await files.readText("blob"), "grüße und mehr");
  assert.ok((await failureOf(files.write("blob", "", { mode: "create_new" }))) instanceof FileExistsError);
  assert.ok((await failureOf(files.read("nothing"))) instanceof FileNotFoundError);
  assert.ok((await failureOf(files.read("dir"))) instanceof FileKindWrongError);
  async function* broken(): AsyncGenerator<Uint8Array> {
    yield bytes.subarray(0, 10);
    throw new Error("the source broke");
  }
  assert.equal((await failureOf(files.write("half", broken()))).message, "the source broke");
});

test("list, stat, move, copy, remove, search", async () => {
  await using sandbox = await at.client.sandboxes.create({
    files: { "src/a.py": "import os\n", "src/deep/b.py": "x = 1\nimport sys\n", "c.txt": "c" },
  });
  const { files } = sandbox;
  assert.deepEqual((await files.list("src", { depth: 5 })).map(({ path, kind }) => `${kind} ${path}`).sort(), [
    "directory deep",
    "file a.py",
    "file deep/b.py",
  ]);
  const found = [];
  for await (const hit of files.search({ path: "src", content: "import", name: "*.py" }))
    found.push(`${hit.path}:${hit.line}`);
  assert.deepEqual(
    found.sort().map((hit) => hit.replace(/^.*\/src\/|^src\/|^\.\//, "")),
    ["a.py:1", "deep/b.py:2"],
  );
  await files.makeDirectory("made/of/many", { parents: true });
  await files.move("c.txt", "made/c.txt");
  assert.equal(await files.exists("c.txt"), false);
  assert.equal((await files.stat("made/c.txt")).kind, "file");
  assert.equal((await files.copy("src", "made/src", { recursive: true })).files, 2);
  assert.equal((await files.chmod("made/c.txt", 0o700)).mode, 0o700);
  await files.remove("made", { recursive: true });
  assert.equal(await files.exists("made"), false);
});

test("changes are seen as they happen", async () => {
  await using sandbox = await at.client.sandboxes.create();
  await sandbox.files.makeDirectory("watched");
  const seen = [];
  for await (const { kind, path } of sandbox.files.watch("watched")) {
    if (kind === "watching") await sandbox.files.write("watched/new", "x");
    else seen.push(`${kind} ${path}`);
    if (kind === "modified") break;
  }
  assert.deepEqual(seen, ["created new", "modified new"]);
  const quiet = sandbox.files.watch("watched", { signal: AbortSignal.timeout(200) });
  await quiet.next();
  assert.ok((await failureOf(quiet.next())) instanceof TimedOutError);
});

test("trees go there and back", async () => {
  await using sandbox = await at.client.sandboxes.create();
  const here = await mkdtemp(join(tmpdir(), "belljar-tree-"));
  try {
    const long = "n".repeat(120);
    await mkdir(join(here, "up", "sub"), { recursive: true });
    await writeFile(join(here, "up", "sub", long), randomBytes(70_000));
    await writeFile(join(here, "up", "run"), "#!/bin/sh\necho ran\n");
    await chmod(join(here, "up", "run"), 0o755);
    await writeFile(join(here, "up", "empty"), "");
    await symlink(`sub/${long}`, join(here, "up", "link"));
    await writeFile(Buffer.from(`${join(here, "up")}/\xff\xfe`, "latin1"), "no text");
    await symlink("/etc/passwd", join(here, "up", "out"));
    const sent = await sandbox.files.upload(join(here, "up"), "tree");
    assert.deepEqual([sent.files, sent.links, sent.skipped], [4, 1, 1]);
    assert.equal((await sandbox.run("./tree/run")).stdout, "ran\n");
    await sandbox.run("ln -s /etc/passwd tree/out; ln -s sub/../../.. tree/up; mkfifo tree/pipe");
    const got = await sandbox.files.download("tree", join(here, "down"));
    assert.deepEqual([got.files, got.links, got.skipped >= 2], [4, 1, true]);
    const odd = Buffer.from(`${join(here, "down")}/\xff\xfe`, "latin1");
    assert.equal(await readFile(odd, "utf8"), "no text");
    assert.deepEqual(await readFile(join(here, "down", "sub", long)), await readFile(join(here, "up", "sub", long)));
    assert.equal(await readlink(join(here, "down", "link")), `sub/${long}`);
    assert.equal((await lstat(join(here, "down", "run"))).mode & 0o777, 0o755);
    await assert.rejects(lstat(join(here, "down", "out")));
    await assert.rejects(lstat(join(here, "down", "up")));
    // Again, over what is there.
    assert.equal((await sandbox.files.download("tree", join(here, "down"))).files, 4);
    const zip = await new Response(await sandbox.files.readArchive("tree/sub", { format: "zip" })).arrayBuffer();
    assert.equal(Buffer.from(zip).toString("latin1", 0, 2), "PK");
  } finally {
    await rm(here, { recursive: true });
  }
});

test("an archive that wants out gets nowhere", async () => {
  const here = await mkdtemp(join(tmpdir(), "belljar-hostile-"));
  const archive = async function* (...entries: [string, "file" | "symlink", string][]): AsyncGenerator<Uint8Array> {
    for (const [path, kind, content] of entries) {
      const data = Buffer.from(kind === "file" ? content : "");
      yield header({ path, kind, mode: 0o4755, size: data.length, target: kind === "symlink" ? content : "" });
      yield data;
      yield padding(data.length);
    }
    yield ending();
  };
  try {
    const into = join(here, "into");
    for (const path of ["../out", "/tmp/belljar-hostile-out", "a/../../out"]) {
      assert.ok((await failureOf(unpackTree(archive([path, "file", "x"]), into))) instanceof ArchiveRefusedError, path);
    }
    // A link that was there before is not written through.
    await symlink(here, join(into, "door"));
    assert.ok((await failureOf(unpackTree(archive(["door/out", "file", "x"]), into))) instanceof ArchiveRefusedError);
    const report = await unpackTree(
      archive(
        ["in", "symlink", ".."],
        ["d/up", "symlink", "../x/../.."],
        ["in/out", "file", "x"],
        ["fine", "symlink", "in/out"],
      ),
      into,
    );
    assert.deepEqual(report, { files: 1, directories: 0, links: 1, bytes: 1, skipped: 2 });
    assert.equal((await lstat(join(into, "in/out"))).mode & 0o7777, 0o755);
    await assert.rejects(lstat(join(here, "out")));
    const cut = async function* (): AsyncGenerator<Uint8Array> {
      for await (const piece of archive(["whole", "file", "x".repeat(2000)])) yield piece.subarray(0, 1000);
    };
    assert.match((await failureOf(unpackTree(cut(), into))).message, /damaged/);
  } finally {
    await rm(here, { recursive: true });
  }
});
