// Directories of this machine that are held open. A sandbox may share them, and put a link where a directory was a moment
// ago: what is done in an open directory is done there, whatever its name leads to by then. Names in it are bytes, in strings
// whose characters are one byte each (`latin1`).
import { type Stats, constants, existsSync } from "node:fs";
import { type FileHandle, mkdir, open, readdir } from "node:fs/promises";

/** Where Linux shows what is open. Elsewhere names are all there is; a link is then refused only if it is there in time. */
const OPEN = "/proc/self/fd";
const byDescriptor = existsSync(OPEN);

export class Directory {
  readonly #handle: FileHandle;
  readonly #path: Buffer;

  private constructor(handle: FileHandle, path: Buffer) {
    this.#handle = handle;
    this.#path = byDescriptor ? Buffer.from(`${OPEN}/${handle.fd}`) : path;
  }

  /** A directory that was named by whoever calls: links on its way are theirs. */
  static async open(path: string): Promise<Directory> {
    return new Directory(await open(path, constants.O_RDONLY | constants.O_DIRECTORY), Buffer.from(path));
  }

  /** A directory in it, never through a link. */
  async enter(name: string): Promise<Directory> {
    const path = this.at(name);
    const flags = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;
    return new Directory(await open(path, flags), path);
  }

  /** The same, made where it is missing. */
  async make(name: string): Promise<Directory> {
    await mkdir(this.at(name)).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== "EEXIST") throw error;
    });
    return await this.enter(name);
  }

  /** A path for what is done with one name in it. */
  at(name: string): Buffer {
    return Buffer.concat([this.#path, Buffer.from(`/${name}`, "latin1")]);
  }

  /** In order. */
  async names(): Promise<string[]> {
    return (await readdir(this.#path, "latin1")).sort();
  }

  async stat(): Promise<Stats> {
    return await this.#handle.stat();
  }

  async close(): Promise<void> {
    await this.#handle.close();
  }
}

/** A name as people may see it. A sandbox may have chosen it. */
export function shown(name: string): string {
  return inert(Buffer.from(name, "latin1").toString());
}

/** What would do something to a terminal is escaped. */
function inert(text: string): string {
  const escaped = (character: string): string => `\\u{${character.codePointAt(0)?.toString(16)}}`;
  return text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, escaped);
}

/** An error that says which name it is about, rather than which descriptor. */
export function named(error: unknown, path: string): unknown {
  if (!(error instanceof Error)) return error;
  const told: NodeJS.ErrnoException & { dest?: string } = error;
  const before = told.message;
  for (const part of ["path", "dest"] as const) {
    const place = told[part];
    if (place === undefined) continue;
    const better = place.startsWith(`${OPEN}/`) ? shown(path) : inert(place);
    // What a link says comes first, and may look like its place.
    const at = part === "path" ? told.message.indexOf(place) : told.message.lastIndexOf(place);
    if (better === place || at < 0) continue;
    told[part] = better;
    told.message = told.message.slice(0, at) + better + told.message.slice(at + place.length);
  }
  // It has the message as it was, and is what people see of an error that nobody catches.
  if (told.stack !== undefined) told.stack = told.stack.replace(before, () => told.message);
  return told;
}

/** Whether something else was where a directory should have been. */
export function isNoDirectory(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === "ELOOP" || code === "ENOTDIR";
}
