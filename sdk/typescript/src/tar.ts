// Tar, as much of it as trees of files need: files, directories and links, with names and sizes of any length.
//
// Names are bytes, and need not be text. They stand in strings whose characters are one byte each (`latin1`), so that two
// names that differ never become one.

const BLOCK = 512;
/** The largest number that eleven octal digits hold. */
const OCTAL_MAX = 0o77777777777;
/** Names and the like; more than any kernel takes. */
const LONGEST_EXTRA = 1 << 20;

/** What stands before each entry's data. */
export interface Entry {
  readonly path: string;
  readonly kind: "file" | "directory" | "symlink" | "other";
  readonly mode: number;
  readonly size: number;
  readonly target: string;
}

/** The blocks before an entry's data. */
export function header(entry: Entry): Buffer {
  const extra: [string, string][] = [];
  if (entry.path.length > 100) extra.push(["path", entry.path]);
  if (entry.target.length > 100) extra.push(["linkpath", entry.target]);
  if (entry.size > OCTAL_MAX) extra.push(["size", String(entry.size)]);
  const type = { file: "0", directory: "5", symlink: "2", other: "0" }[entry.kind];
  // One that is larger than the field stands only in the record before: a server takes no other beside it.
  const size = entry.size > OCTAL_MAX ? 0 : entry.size;
  const block = plain(entry.path, type, entry.mode, size, entry.target);
  if (extra.length === 0) return block;
  const records = Buffer.concat(extra.map(([name, value]) => record(name, value)));
  return Buffer.concat([plain("extra", "x", 0o644, records.length, ""), records, padding(records.length), block]);
}

/** What follows `size` bytes of data, up to a whole block. */
export function padding(size: number): Buffer {
  return Buffer.alloc((BLOCK - (size % BLOCK)) % BLOCK);
}

/** The end of an archive. */
export function ending(): Buffer {
  return Buffer.alloc(2 * BLOCK);
}

function plain(path: string, type: string, mode: number, size: number, target: string): Buffer {
  const block = Buffer.alloc(BLOCK);
  // A name that is cut here is whole in the record before.
  Buffer.from(path, "latin1").copy(block, 0, 0, 100);
  const octal = (value: number, at: number, width: number): void => {
    block.write(`${value.toString(8).padStart(width - 1, "0")}\0`, at, "latin1");
  };
  octal(mode & 0o7777, 100, 8);
  octal(0, 108, 8);
  octal(0, 116, 8);
  octal(size, 124, 12);
  octal(0, 136, 12);
  block.fill(" ", 148, 156);
  block.write(type, 156, "latin1");
  Buffer.from(target, "latin1").copy(block, 157, 0, 100);
  block.write("ustar\u000000", 257, "latin1");
  octal(
    block.reduce((sum, byte) => sum + byte, 0),
    148,
    7,
  );
  return block;
}

/** `LENGTH NAME=VALUE\n`, where the length counts itself. */
function record(name: string, value: string): Buffer {
  const rest = ` ${name}=${value}\n`.length;
  let length = rest + String(rest).length;
  length = rest + String(length).length;
  return Buffer.from(`${length} ${name}=${value}\n`, "latin1");
}

/** Reads entries one after the other; an entry's data is read, or skipped, before the next. */
export class TarReader {
  readonly #source: AsyncIterator<Uint8Array>;
  #rest: Buffer = Buffer.alloc(0);
  #unread = 0;
  #pad = 0;

  constructor(source: AsyncIterable<Uint8Array>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  async next(): Promise<Entry | undefined> {
    for await (const _ of this.data());
    const extra = new Map<string, string>();
    for (;;) {
      const block = await this.#take(BLOCK);
      if (block.every((byte) => byte === 0)) {
        // What comes behind the end is of no interest, but has to be taken.
        while (!(await this.#source.next()).done);
        return undefined;
      }
      check(block);
      const type = String.fromCharCode(block[156] ?? 0);
      const size = extra.has("size") ? Number(extra.get("size")) : number(block.subarray(124, 136));
      if (!Number.isSafeInteger(size) || size < 0) throw damaged("a size");
      if ("xgLK".includes(type)) {
        if (size > LONGEST_EXTRA) throw damaged("a name");
        const data = await this.#take(size);
        await this.#take((BLOCK - (size % BLOCK)) % BLOCK);
        if (type === "x") for (const [name, value] of records(data)) extra.set(name, value);
        if (type === "L") extra.set("path", text(data));
        if (type === "K") extra.set("linkpath", text(data));
        continue;
      }
      this.#unread = size;
      this.#pad = (BLOCK - (size % BLOCK)) % BLOCK;
      const prefix =
        block.toString("latin1", 257, 262) === "ustar" && block[263] === 0x30 ? text(block.subarray(345, 500)) : "";
      const name = text(block.subarray(0, 100));
      const kinds: Record<string, Entry["kind"]> = { "0": "file", "\0": "file", "5": "directory", "2": "symlink" };
      return {
        path: extra.get("path") ?? (prefix === "" ? name : `${prefix}/${name}`),
        kind: kinds[type] ?? "other",
        mode: number(block.subarray(100, 108)),
        size,
        target: extra.get("linkpath") ?? text(block.subarray(157, 257)),
      };
    }
  }

  /** The data of the entry that came last. */
  async *data(): AsyncGenerator<Buffer, void, undefined> {
    while (this.#unread > 0) {
      if (this.#rest.length === 0) await this.#more();
      const piece = this.#rest.subarray(0, this.#unread);
      this.#rest = this.#rest.subarray(piece.length);
      this.#unread -= piece.length;
      yield piece;
    }
    const pad = this.#pad;
    this.#pad = 0;
    await this.#take(pad);
  }

  async #take(size: number): Promise<Buffer> {
    while (this.#rest.length < size) await this.#more();
    const taken = this.#rest.subarray(0, size);
    this.#rest = this.#rest.subarray(size);
    return taken;
  }

  async #more(): Promise<void> {
    const next = await this.#source.next();
    if (next.done) throw damaged("its end");
    this.#rest = this.#rest.length === 0 ? Buffer.from(next.value) : Buffer.concat([this.#rest, next.value]);
  }
}

function check(block: Buffer): void {
  const expected = number(block.subarray(148, 156));
  const sum = block.reduce((sum, byte, at) => sum + (at >= 148 && at < 156 ? 32 : byte), 0);
  if (sum !== expected) throw damaged("a checksum");
}

function number(field: Buffer): number {
  // Large numbers are written in binary behind a mark.
  if (((field[0] ?? 0) & 0x80) !== 0) return field.subarray(1).reduce((value, byte) => value * 256 + byte, 0);
  return Number.parseInt(text(field).trim() || "0", 8);
}

function text(field: Buffer): string {
  const end = field.indexOf(0);
  return field.toString("latin1", 0, end < 0 ? field.length : end);
}

function* records(data: Buffer): Generator<[string, string], void, undefined> {
  for (let at = 0; at < data.length;) {
    const space = data.indexOf(0x20, at);
    const length = Number(data.toString("latin1", at, space));
    const equals = data.indexOf(0x3d, space);
    if (space < 0 || equals < 0 || !Number.isSafeInteger(length) || length <= space - at) throw damaged("a record");
    yield [data.toString("latin1", space + 1, equals), data.toString("latin1", equals + 1, at + length - 1)];
    at += length;
  }
}

function damaged(part: string): Error {
  return new Error(`${part} of the archive is damaged or missing`);
}
