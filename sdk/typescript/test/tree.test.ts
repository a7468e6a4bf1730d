// Trees whose directories are changed by somebody else while they are packed and unpacked.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdir, mkdtemp, open, readFile, readdir, readlink, rename, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { ArchiveRefusedError } from "belljar";
import { Directory, named } from "../src/directory.js";
import { TarReader, ending, header, padding } from "../src/tar.js";
import { openFile, packTree, unpackTree } from "../src/tree.js";
import { failureOf } from "./server.js";

interface Places {
  tree: string;
  host: string;
}

/** A tree with a file and a directory, and a directory of the host's. */
async function within(work: (places: Places) => Promise<void>): Promise<void> {
  const here = await mkdtemp(join(tmpdir(), "belljar-swapped-"));
  const [tree, host] = [join(here, "tree"), join(here, "host")];
  try {
    await mkdir(join(tree, "b"), { recursive: true });
    await mkdir(host);
    await writeFile(join(tree, "a"), "first");
    await writeFile(join(tree, "b", "key"), "ours");
    await writeFile(join(host, "key"), "the host's");
    await work({ tree, host });
  } finally {
    await rm(here, { recursive: true });
  }
}

async function swap({ tree, host }: Places): Promise<void> {
  await rename(join(tree, "b"), join(tree, "z"));
  await symlink(host, join(tree, "b"));
}

function file(path: string, content: string): Uint8Array {
  const data = Buffer.from(content);
  const head = header({ path, kind: "file", mode: 0o644, size: data.length, target: "" });
  return Buffer.concat([head, data, padding(data.length)]);
}

/** What was packed, while something happens once the entry `at` has begun. */
async function packed(places: Places, at: string, happens: () => Promise<void>): Promise<Map<string, string>> {
  const pieces = async function* (): AsyncGenerator<Uint8Array> {
    let happened = false;
    for await (const piece of packTree(places.tree)) {
      yield piece;
      if (!happened && Buffer.from(piece).toString("latin1", 0, at.length) === at) {
        happened = true;
        await happens();
      }
    }
    assert.ok(happened);
  };
  const found = new Map<string, string>();
  const reader = new TarReader(pieces());
  for (let entry = await reader.next(); entry !== undefined; entry = await reader.next()) {
    const data: Buffer[] = [];
    for await (const piece of reader.data()) data.push(piece);
    found.set(entry.path, entry.kind === "symlink" ? `-> ${entry.target}` : Buffer.concat(data).toString());
  }
  return found;
}

test("a directory that becomes a link is not packed through it", async () => {
  await within(async (places) => {
    const found = await packed(places, "a", () => swap(places));
    // As the link that it is; a sandbox would refuse it.
    assert.deepEqual([...found], [["a", "first"]]);
  });
  await within(async (places) => {
    const found = await packed(places, "b/", () => swap(places));
    assert.deepEqual([...found], [["a", "first"], ["b/", ""], ["b/key", "ours"]]);
  });
});

test("what became something else since it was seen is not read", async () => {
  await within(async ({ tree, host }) => {
    execFileSync("mkfifo", [join(tree, "pipe")]);
    await symlink(join(host, "key"), join(tree, "link"));
    const opened = (name: string): ReturnType<typeof openFile> => openFile(Buffer.from(join(tree, name)), name);
    for (const name of ["pipe", "link", "b"]) {
      const { message } = await failureOf(opened(name));
      assert.match(message, new RegExp(`^\`${name}\` was replaced by something else`));
    }
    // The twin: it is what it was.
    const { file, size } = await opened("a");
    await file.close();
    assert.equal(size, 5);
  });
});

test("a directory that becomes a link is not unpacked through", async () => {
  await within(async (places) => {
    const archive = async function* (): AsyncGenerator<Uint8Array> {
      yield file("b/new", "x");
      await swap(places);
      yield file("b/key", "x");
      yield ending();
    };
    assert.ok((await failureOf(unpackTree(archive(), places.tree))) instanceof ArchiveRefusedError);
    assert.equal(await readFile(join(places.host, "key"), "utf8"), "the host's");
    assert.deepEqual(await readdir(places.host), ["key"]);
  });
  // The twin: nobody interferes.
  await within(async ({ tree }) => {
    const archive = async function* (): AsyncGenerator<Uint8Array> {
      yield file("b/new", "x");
      yield file("b/key", "x");
      yield file("c/d/e", "x");
      yield ending();
    };
    const report = await unpackTree(archive(), tree);
    assert.deepEqual(report, { files: 3, directories: 0, links: 0, bytes: 3, skipped: 0 });
    assert.equal(await readFile(join(tree, "c", "d", "e"), "utf8"), "x");
  });
});

test("names are bytes, and two that differ stay two", async () => {
  await within(async ({ tree, host }) => {
    const bytes = (text: string): Buffer => Buffer.from(text, "latin1");
    // None of them is text; cut within a character; as it is typed.
    const names = ["\xff", "\xfe", "\xff".repeat(120), Buffer.from(`${"x".repeat(99)}é`).toString("latin1")];
    names.push(Buffer.from("größe").toString("latin1"));
    for (const name of names) await writeFile(bytes(`${tree}/b/${name}`), name, "latin1");
    await symlink(bytes("\xfd".repeat(120)), join(tree, "long"));
    const report = await unpackTree(packTree(tree), host);
    assert.deepEqual([report.files, report.links], [7, 1]);
    for (const name of names) assert.equal(await readFile(bytes(`${host}/b/${name}`), "latin1"), name);
    assert.equal(await readlink(join(host, "long"), "latin1"), "\xfd".repeat(120));
    assert.equal(await readFile(join(host, "b", "größe"), "latin1"), Buffer.from("größe").toString("latin1"));
  });
});

test("what a sandbox would refuse is left out and counted", async () => {
  await within(async ({ tree, host }) => {
    execFileSync("mkfifo", [join(tree, "pipe")]);
    const links: [string, string][] = [
      ["absolute", "/etc/passwd"],
      ["above", "../x"],
      ["b/above", "../../x"],
      ["b/behind", "../b/../a"],
      ["b/inside", "../a"],
      ["nowhere", "./x/y"],
    ];
    for (const [name, target] of links) await symlink(target, join(tree, name));
    const left = { skipped: 0 };
    const { files, directories, links: made, skipped } = await unpackTree(packTree(tree, left), host);
    assert.deepEqual([files, directories, made, skipped, left.skipped], [2, 1, 2, 0, 5]);
  });
});

test("what is too deep is said so", async () => {
  await within(async ({ tree }) => {
    const deep = join(tree, ...Array<string>(128).fill("d"));
    await mkdir(deep, { recursive: true });
    const pack = async (): Promise<void> => {
      for await (const _ of packTree(tree));
    };
    await pack();
    await writeFile(join(deep, "file"), "");
    const failure = await failureOf(pack());
    assert.ok(failure instanceof ArchiveRefusedError);
    assert.match(failure.message, /too deep for an archive/);
  });
});

test("an error names what it is about", async () => {
  await within(async ({ tree }) => {
    const archive = async function* (): AsyncGenerator<Uint8Array> {
      // A directory is not replaced by a file.
      yield file("c/d/e", "x");
      yield file("c/d", "x");
      yield ending();
    };
    assert.match((await failureOf(unpackTree(archive(), tree))).message, /'c\/d'$/);
  });
  await within(async ({ tree }) => {
    // What a link says is a sandbox's word, and too long here.
    for (const word of ["\x1b]0;x\x07", "größe's $&", "proc/self/fd/20/l"]) {
      const target = `${word}${"/x".repeat(2048)}`;
      const archive = async function* (): AsyncGenerator<Uint8Array> {
        const bytes = Buffer.from(target).toString("latin1");
        yield header({ path: "b/l\x07", kind: "symlink", mode: 0o777, size: 0, target: bytes });
        yield ending();
      };
      const failure = (await failureOf(unpackTree(archive(), tree))) as NodeJS.ErrnoException & { dest?: string };
      const expected = target.replace("\x1b", "\\u{1b}").replace("\x07", "\\u{7}");
      assert.equal(failure.message, `ENAMETOOLONG: name too long, symlink '${expected}' -> 'b/l\\u{7}'`);
      assert.deepEqual([failure.path, failure.dest], [expected, "b/l\\u{7}"]);
      assert.ok(failure.stack?.includes(failure.message));
    }
  });
});

test("a size that the plain header cannot hold stands before it alone", async () => {
  for (const [size, plain] of [
    [8 * 2 ** 30 - 1, "77777777777"],
    [8 * 2 ** 30, "00000000000"],
  ] as const) {
    const head = header({ path: "huge", kind: "file", mode: 0o644, size, target: "" });
    assert.equal(head.subarray(-512).toString("latin1", 124, 135), plain);
    const archive = async function* (): AsyncGenerator<Uint8Array> {
      yield head;
    };
    assert.equal((await new TarReader(archive()).next())?.size, size);
  }
});

test("errors of what is packed name what they are about", async () => {
  await within(async ({ tree }) => {
    for (const name of ["x's", "x$&", "xé"]) {
      await writeFile(join(tree, "b", name), "");
      const pack = async (): Promise<void> => {
        // Gone after it was seen.
        for await (const piece of packTree(tree))
          if (Buffer.from(piece).toString("latin1", 0, 5) === "b/key") await rm(join(tree, "b", name));
      };
      const failure = (await failureOf(pack())) as NodeJS.ErrnoException;
      assert.equal(failure.message, `ENOENT: no such file or directory, lstat 'b/${name}'`);
      assert.equal(failure.path, `b/${name}`);
    }
    for (const name of ["it's", "$&", "größe", "\x1b]0;x\x07"]) {
      const bytes = Buffer.from(name).toString("latin1");
      const handle = await Directory.open(tree);
      const failure = named(await failureOf(open(handle.at(bytes))), bytes) as NodeJS.ErrnoException;
      await handle.close();
      const expected = name.replace("\x1b", "\\u{1b}").replace("\x07", "\\u{7}");
      assert.equal(failure.path, expected);
      assert.equal(failure.message, `ENOENT: no such file or directory, open '${expected}'`);
    }
  });
});

test("names in refusals are harmless", async () => {
  await within(async ({ tree }) => {
    const archive = async function* (): AsyncGenerator<Uint8Array> {
      yield file("../\x1b]0;x\x07\n", "x");
    };
    const failure = await failureOf(unpackTree(archive(), tree));
    assert.match(failure.message, /`\.\.\/\\u\{1b\}]0;x\\u\{7\}\\u\{a\}`/);
  });
});

test("what is made goes where its directory went, and descriptors are given back", async () => {
  const open = async (): Promise<number> => (await readdir("/proc/self/fd")).length;
  const before = await open();
  await within(async (places) => {
    const archive = async function* (): AsyncGenerator<Uint8Array> {
      const whole = file("b/key", "x".repeat(100));
      // The file is open when its directory is taken away.
      yield whole.subarray(0, 520);
      await swap(places);
      yield whole.subarray(520);
      yield ending();
    };
    await unpackTree(archive(), places.tree);
    assert.equal(await readFile(join(places.tree, "z", "key"), "utf8"), "x".repeat(100));
    assert.equal(await readFile(join(places.host, "key"), "utf8"), "the host's");
    for await (const _ of packTree(places.tree)) break;
  });
  assert.equal(await open(), before);
});
