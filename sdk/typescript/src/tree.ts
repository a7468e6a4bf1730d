// Whole trees of this machine, packed for a sandbox and unpacked from one. What comes from a sandbox is hostile until
// shown otherwise: names are checked one by one, nothing that exists is followed, links come last.
import { constants } from "node:fs";
import { type FileHandle, lstat, mkdir, open, readdir, readlink, symlink, unlink } from "node:fs/promises";
import { dirname, join, posix } from "node:path";
import { errorOf } from "./errors.js";
import { TarReader, ending, header, padding } from "./tar.js";

/** What was made on this machine. */
export interface TreeReport {
  files: number;
  directories: number;
  links: number;
  bytes: number;
  /** Entries of other kinds, and links that lead outside. */
  skipped: number;
}

const PIECE = 256 * 1024;

/** A directory with all that is in it as a tar archive. Links stay links; devices, pipes and sockets are left out. */
export async function* packTree(directory: string): AsyncGenerator<Uint8Array, void, undefined> {
  yield* packed(directory, "");
  yield ending();
}

async function* packed(directory: string, prefix: string): AsyncGenerator<Uint8Array, void, undefined> {
  const entries = await readdir(directory, { withFileTypes: true });
  for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
    const place = join(directory, entry.name);
    const path = prefix + entry.name;
    if (entry.isDirectory()) {
      const { mode } = await lstat(place);
      yield header({ path: `${path}/`, kind: "directory", mode, size: 0, target: "" });
      yield* packed(place, `${path}/`);
    } else if (entry.isSymbolicLink()) {
      yield header({ path, kind: "symlink", mode: 0o777, size: 0, target: await readlink(place) });
    } else if (entry.isFile()) {
      yield* packedFile(place, path);
    }
  }
}

async function* packedFile(place: string, path: string): AsyncGenerator<Uint8Array, void, undefined> {
  const file = await open(place, constants.O_RDONLY | constants.O_NOFOLLOW);
  try {
    const { size, mode } = await file.stat();
    yield header({ path, kind: "file", mode, size, target: "" });
    for (let left = size; left > 0;) {
      const { buffer, bytesRead } = await file.read(Buffer.alloc(Math.min(left, PIECE)));
      if (bytesRead === 0)
        throw errorOf({ code: "interrupted", message: `\`${place}\` became shorter while it was read` });
      left -= bytesRead;
      yield buffer.subarray(0, bytesRead);
    }
    yield padding(size);
  } finally {
    await file.close();
  }
}

/** Unpacks a tar archive below a directory, which is made where it is missing. Files that exist are replaced. */
export async function unpackTree(archive: AsyncIterable<Uint8Array>, directory: string): Promise<TreeReport> {
  const report: TreeReport = { files: 0, directories: 0, links: 0, bytes: 0, skipped: 0 };
  const links: { path: string; target: string }[] = [];
  const tree = new Tree(directory);
  await mkdir(directory, { recursive: true });
  const reader = new TarReader(archive);
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
  // Last, so that nothing in the archive can be written through one.
  for (const { path, target } of links) {
    await tree.makeLink(path, target);
    report.links += 1;
  }
  return report;
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
  readonly #root: string;
  /** Directories that were seen to be directories. */
  readonly #known = new Set<string>([""]);

  constructor(root: string) {
    this.#root = root;
  }

  async makeDirectory(path: string): Promise<void> {
    if (this.#known.has(path)) return;
    const parent = posix.dirname(path);
    if (parent !== ".") await this.makeDirectory(parent);
    const place = join(this.#root, path);
    await mkdir(place).catch(async (error: NodeJS.ErrnoException) => {
      if (error.code !== "EEXIST" || !(await lstat(place)).isDirectory())
        throw error.code === "EEXIST" ? outside(path) : error;
    });
    this.#known.add(path);
  }

  async makeFile(path: string, mode: number): Promise<FileHandle> {
    const place = await this.#cleared(path);
    // Exclusive: what was put there in between is not followed.
    return await open(place, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW, mode);
  }

  async makeLink(path: string, target: string): Promise<void> {
    await symlink(target, await this.#cleared(path));
  }

  async #cleared(path: string): Promise<string> {
    const parent = dirname(path);
    if (parent !== ".") await this.makeDirectory(parent);
    const place = join(this.#root, path);
    await unlink(place).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== "ENOENT") throw error;
    });
    return place;
  }
}

function outside(path: string): Error {
  return errorOf({
    code: "archive-refused",
    message: `the archive has \`${path}\`, which leads outside or through a link`,
    remedy: "look at what the sandbox made of that directory",
  });
}
