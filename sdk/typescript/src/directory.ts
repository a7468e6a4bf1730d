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

/** A name as people may see it. A sandbox may have chosen it: what would do something to a terminal is escaped. */
export function shown(name: string): string {
  const escaped = (character: string): string => `\\u{${character.codePointAt(0)?.toString(16)}}`;
  return Buffer.from(name, "latin1").toString().replace(/[\p{C}\p{Zl}\p{Zp}]/gu, escaped);
}

/** An error that says which name it is about, rather than which descriptor. */
export function named(error: unknown, path: string): unknown {
  if (!(error instanceof Error)) return error;
  const told: NodeJS.ErrnoException & { dest?: string } = error;
  for (const part of ["path", "dest"] as const) {
    const place = told[part];
    if (!place?.startsWith(`${OPEN}/`)) continue;
    told[part] = shown(path);
    // By a function: in a plain replacement, `$&` would mean something.
    told.message = told.message.replace(place, () => shown(path));
  }
  return told;
}

/** Whether something else was where a directory should have been. */
export function isNoDirectory(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === "ELOOP" || code === "ENOTDIR";
}
