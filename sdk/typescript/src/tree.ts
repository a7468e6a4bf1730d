// Whole trees of this machine, packed for a sandbox and unpacked from one. What comes from a sandbox is hostile until
// shown otherwise: names are checked one by one, nothing that exists is followed, links come last. A sandbox that shares
// the directory may change it meanwhile: directories are entered by descriptor, in both directions.
import { constants } from "node:fs";
import { type FileHandle, lstat, mkdir, open, readlink, symlink, unlink } from "node:fs/promises";
import { posix } from "node:path";
import { Directory, isNoDirectory, named, shown } from "./directory.js";
import { errorOf } from "./errors.js";
import { TarReader, ending, header, padding } from "./tar.js";

/** What was copied. */
export interface TreeReport {
  files: number;
  directories: number;
  links: number;
  bytes: number;
  /** What was left out: entries of other kinds, and links that lead outside. */
  skipped: number;
}

const PIECE = 256 * 1024;
/** Directories in each other; a sandbox takes no more. */
const DEEPEST = 128;

/** A directory with all that is in it as a tar archive. Links stay links; what a sandbox would refuse is left out and counted. */
export async function* packTree(
  directory: string,
  report: Pick<TreeReport, "skipped"> = { skipped: 0 },
): AsyncGenerator<Uint8Array, void, undefined> {
  const root = await Directory.open(directory);
  try {
    yield* packed(root, "", 0, report);
  } catch (error) {
    throw named(error, Buffer.from(directory).toString("latin1"));
  } finally {
    await root.close();
  }
  yield ending();
}

async function* packed(
  directory: Directory,
  prefix: string,
  depth: number,
  report: Pick<TreeReport, "skipped">,
): AsyncGenerator<Uint8Array, void, undefined> {
  for (const name of await directory.names()) {
    const path = prefix + name;
    if (depth >= DEEPEST)
      throw errorOf({ code: "archive-refused", message: `\`${shown(path)}\` is too deep for an archive` });
    try {
      yield* packedEntry(directory, name, path, depth, report);
    } catch (error) {
      throw named(error, path);
    }
  }
}

async function* packedEntry(
  directory: Directory,
  name: string,
  path: string,
  depth: number,
  report: Pick<TreeReport, "skipped">,
): AsyncGenerator<Uint8Array, void, undefined> {
  const place = directory.at(name);
  const found = await lstat(place);
  if (found.isDirectory()) {
    yield* packedDirectory(directory, name, path, depth, report);
  } else if (found.isSymbolicLink()) {
    const target = await readlink(place, "latin1");
    if (staysInside(path, target)) yield header({ path, kind: "symlink", mode: 0o777, size: 0, target });
    else report.skipped += 1;
  } else if (found.isFile()) {
    yield* packedFile(place, path);
  } else {
    report.skipped += 1;
  }
}

async function* packedDirectory(
  above: Directory,
  name: string,
  path: string,
  depth: number,
  report: Pick<TreeReport, "skipped">,
): AsyncGenerator<Uint8Array, void, undefined> {
  const directory = await above.enter(name).catch((error: unknown) => {
    throw isNoDirectory(error) ? replaced(path) : error;
  });
  try {
    const { mode } = await directory.stat();
    yield header({ path: `${path}/`, kind: "directory", mode, size: 0, target: "" });
    yield* packed(directory, `${path}/`, depth + 1, report);
  } finally {
    await directory.close();
  }
}

async function* packedFile(place: Buffer, path: string): AsyncGenerator<Uint8Array, void, undefined> {
  const { file, size, mode } = await openFile(place, path);
  try {
    yield header({ path, kind: "file", mode, size, target: "" });
    for (let left = size; left > 0;) {
      const { buffer, bytesRead } = await file.read(Buffer.alloc(Math.min(left, PIECE)));
      if (bytesRead === 0)
        throw errorOf({ code: "interrupted", message: `\`${shown(path)}\` became shorter while it was read` });
      left -= bytesRead;
      yield buffer.subarray(0, bytesRead);
    }
    yield padding(size);
  } finally {
    await file.close();
  }
}

/** Opens what was seen to be a file, if it still is. A pipe in its place keeps nobody waiting. */
export async function openFile(
  place: Buffer,
  path: string,
): Promise<{ file: FileHandle; size: number; mode: number }> {
  const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
  const file = await open(place, flags).catch((error: NodeJS.ErrnoException) => {
    throw error.code === "ELOOP" || error.code === "ENXIO" ? replaced(path) : error;
  });
  try {
    const found = await file.stat();
    if (!found.isFile()) throw replaced(path);
    return { file, size: found.size, mode: found.mode };
  } catch (error) {
    await file.close();
    throw error;
  }
}

function replaced(path: string): Error {
  const message = `\`${shown(path)}\` was replaced by something else while it was read`;
  return errorOf({ code: "interrupted", message });
}

/** Unpacks a tar archive below a directory, which is made where it is missing. Files that exist are replaced. */
export async function unpackTree(archive: AsyncIterable<Uint8Array>, directory: string): Promise<TreeReport> {
  const report: TreeReport = { files: 0, directories: 0, links: 0, bytes: 0, skipped: 0 };
  const links: { path: string; target: string }[] = [];
  await mkdir(directory, { recursive: true });
  const tree = new Tree(await Directory.open(directory));
  try {
    await unpacked(new TarReader(archive), tree, report, links);
    // Last, so that nothing in the archive can be written through one.
    for (const { path, target } of links) {
      await tree.makeLink(path, target);
      report.links += 1;
    }
  } finally {
    await tree.close();
  }
  return report;
}

async function unpacked(
  reader: TarReader,
  tree: Tree,
  report: TreeReport,
  links: { path: string; target: string }[],
): Promise<void> {
  for (let entry = await reader.next(); entry !== undefined; entry = await reader.next()) {
    const path = cleaned(entry.path);
    if (path === "") continue;
    if (entry.kind === "directory") {
      await tree.makeDirectory(path);
      report.directories += 1;
    } else if (entry.kind === "file") {
      const file = await tree.makeFile(path, entry.mode & 0o777);
      try {
        for await (const piece of reader.data()) await file.writeFile(piece);
      } finally {
        await file.close();
      }
      report.files += 1;
      report.bytes += entry.size;
    } else if (entry.kind === "symlink" && staysInside(path, entry.target)) {
      links.push({ path, target: entry.target });
    } else {
      report.skipped += 1;
    }
  }
}

/** A path made of plain names, or a refusal. */
function cleaned(path: string): string {
  const names = path.split("/").filter((name) => name !== "" && name !== ".");
  if (path.startsWith("/") || names.includes("..") || path.includes("\0")) throw outside(path);
  return names.join("/");
}

function staysInside(path: string, target: string): boolean {
  if (target === "" || target.startsWith("/")) return false;
  const names = target.split("/").filter((name) => name !== "" && name !== ".");
  // Going up behind a name would go up from wherever that name leads to.
  if (names.lastIndexOf("..") > names.findIndex((name) => name !== "..") && names.some((name) => name !== ".."))
    return false;
  const meant = posix.normalize(posix.join(posix.dirname(path), target));
  return meant !== ".." && !meant.startsWith("../");
}

/** A directory of this machine that is written to without ever following a link below it. */
class Tree {
  readonly #root: Directory;

  constructor(root: Directory) {
    this.#root = root;
  }

  async makeDirectory(path: string): Promise<void> {
    await this.#in(path, path.split("/"), async () => {});
  }

  async makeFile(path: string, mode: number): Promise<FileHandle> {
    // Exclusive: what was put there in between is not followed.
    const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
    return await this.#cleared(path, (place) => open(place, flags, mode));
  }

  async makeLink(path: string, target: string): Promise<void> {
    await this.#cleared(path, (place) => symlink(Buffer.from(target, "latin1"), place));
  }

  async close(): Promise<void> {
    await this.#root.close();
  }

  /** Makes something where nothing is any more. */
  async #cleared<T>(path: string, make: (place: Buffer) => Promise<T>): Promise<T> {
    const names = path.split("/");
    const name = names.pop() ?? "";
    return await this.#in(path, names, async (directory) => {
      const place = directory.at(name);
      await unlink(place).catch((error: NodeJS.ErrnoException) => {
        if (error.code !== "ENOENT") throw error;
      });
      return await make(place);
    });
  }

  /** Does something in a directory, which is made where it is missing. One step after the other, each in an open directory. */
  async #in<T>(path: string, names: string[], work: (directory: Directory) => Promise<T>): Promise<T> {
    let directory = this.#root;
    try {
      for (const name of names) {
        const inner = await directory.make(name).catch((error: unknown) => {
          throw isNoDirectory(error) ? outside(path) : error;
        });
        if (directory !== this.#root) await directory.close();
        directory = inner;
      }
      return await work(directory);
    } catch (error) {
      throw named(error, path);
    } finally {
      if (directory !== this.#root) await directory.close();
    }
  }
}

function outside(path: string): Error {
  return errorOf({
    code: "archive-refused",
    message: `the archive has \`${shown(path)}\`, which leads outside or through a link`,
    remedy: "look at what the sandbox made of that directory",
  });
}
