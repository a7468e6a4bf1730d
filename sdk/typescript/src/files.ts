// The files of a sandbox. Relative paths start at its working directory.
import type { IncomingMessage } from "node:http";
import { Readable } from "node:stream";
import { FileNotFoundError, abortedBy, lostConnection } from "./errors.js";
import type * as api from "./generated/api.js";
import { jsonLines, serverEvents } from "./sse.js";
import type { Body, Transport } from "./transport.js";
import { type TreeReport, packTree, unpackTree } from "./tree.js";

/** What can be written: whole, or as it comes. */
export type Content = string | Uint8Array | Blob | ReadableStream<Uint8Array> | AsyncIterable<Uint8Array | string>;

interface Signalled {
  readonly signal?: AbortSignal | undefined;
}

/** A part of a file. */
export interface ReadOptions extends Signalled {
  readonly offset?: number | undefined;
  /** Absent: to the end. */
  readonly length?: number | undefined;
}

export interface WriteOptions extends Signalled {
  /** Absent: `truncate`, which replaces the file. */
  readonly mode?: "truncate" | "append" | "create_new" | undefined;
  /** Permission bits, such as `0o644`. */
  readonly permissions?: number | undefined;
  readonly makeParents?: boolean | undefined;
}

export interface SearchOptions extends Signalled {
  /** Absent: the working directory. */
  readonly path?: string | undefined;
  /** A glob for names or paths: `*.py`, `src/test_*`. */
  readonly name?: string | undefined;
  /** Text, or a regular expression with `regex`. */
  readonly content?: string | undefined;
  readonly regex?: boolean | undefined;
  readonly ignoreCase?: boolean | undefined;
  readonly maxDepth?: number | undefined;
  readonly maxResults?: number | undefined;
}

/** A change below a watched path. */
export interface FileEvent {
  /** `watching` comes first: nothing after it is missed. `overflow`: events were lost; list again. */
  readonly kind: "watching" | "created" | "modified" | "removed" | "moved" | "overflow";
  /** Relative to what is watched. */
  readonly path: string;
}

export type ArchiveFormat = "tar" | "tar_gz" | "zip";

export class Files {
  readonly #transport: Transport;
  readonly #base: string;

  /** @internal */
  constructor(transport: Transport, sandboxId: string) {
    this.#transport = transport;
    this.#base = `/v1/sandboxes/${encodeURIComponent(sandboxId)}/files`;
  }

  async read(path: string, options: ReadOptions = {}): Promise<Uint8Array> {
    if (options.length === 0) return new Uint8Array();
    return await this.#transport.bytes("GET", `${this.#base}/content`, this.#reading(path, options));
  }

  async readText(path: string, options: ReadOptions = {}): Promise<string> {
    return Buffer.from(await this.read(path, options)).toString("utf8");
  }

  /** A file as it comes, of any size in constant memory. */
  async readStream(path: string, options: ReadOptions = {}): Promise<ReadableStream<Uint8Array>> {
    const answer = await this.#transport.stream("GET", `${this.#base}/content`, this.#reading(path, options));
    return webStream(answer, options.signal);
  }

  /** Writes a file from text, bytes, a `Blob`, a web stream or anything that can be iterated. */
  async write(path: string, content: Content, options: WriteOptions = {}): Promise<api.FileInfo> {
    return await this.#transport.json<api.FileInfo>("PUT", `${this.#base}/content`, {
      query: {
        path,
        mode: options.mode,
        permissions: options.permissions?.toString(8),
        make_parents: options.makeParents,
      },
      body: bodyOf(content),
      signal: options.signal,
      repeatable: options.mode === undefined || options.mode === "truncate",
    });
  }

  async append(path: string, content: Content, options: Omit<WriteOptions, "mode"> = {}): Promise<api.FileInfo> {
    return await this.write(path, content, { ...options, mode: "append" });
  }

  /** What is in a directory; `depth` levels of it (absent: 1). Paths are relative to it. */
  async list(path = ".", options: Signalled & { depth?: number | undefined } = {}): Promise<api.FileInfo[]> {
    const files: api.FileInfo[] = [];
    let token: string | undefined;
    do {
      const page: api.ListFilesResponse = await this.#transport.json("GET", this.#base, {
        query: { path, depth: options.depth, page_token: token },
        signal: options.signal,
        repeatable: true,
      });
      files.push(...page.files);
      token = page.nextPageToken ?? undefined;
    } while (token !== undefined);
    return files;
  }

  /** What is known about a path; with `follow`, of what a link points to. */
  async stat(path: string, options: Signalled & { follow?: boolean | undefined } = {}): Promise<api.FileInfo> {
    const query = { path, follow: options.follow };
    return await this.#transport.json("GET", `${this.#base}/stat`, { query, signal: options.signal, repeatable: true });
  }

  async exists(path: string, options: Signalled = {}): Promise<boolean> {
    try {
      await this.stat(path, options);
      return true;
    } catch (error) {
      if (error instanceof FileNotFoundError) return false;
      throw error;
    }
  }

  async makeDirectory(
    path: string,
    options: Signalled & { parents?: boolean | undefined } = {},
  ): Promise<api.FileInfo> {
    return await this.#post("/mkdir", { path, parents: options.parents }, options, options.parents === true);
  }

  async move(
    from: string,
    to: string,
    options: Signalled & { replace?: boolean | undefined } = {},
  ): Promise<api.FileInfo> {
    return await this.#post("/move", { from, to, replace: options.replace }, options, false);
  }

  async copy(
    from: string,
    to: string,
    options: Signalled & { recursive?: boolean | undefined; replace?: boolean | undefined } = {},
  ): Promise<api.CopyFileResponse> {
    const { recursive, replace } = options;
    return await this.#post("/copy", { from, to, recursive, replace }, options, replace === true);
  }

  async remove(path: string, options: Signalled & { recursive?: boolean | undefined } = {}): Promise<void> {
    await this.#post("/remove", { path, recursive: options.recursive }, options, false);
  }

  /** Changes permission bits, such as `0o755`. */
  async chmod(path: string, permissions: number, options: Signalled = {}): Promise<api.FileInfo> {
    return await this.#post("/chmod", { path, permissions }, options, true);
  }

  /** Changes below a path as they happen, beginning with `watching`. Ends when the caller stops. */
  async *watch(
    path: string,
    options: Signalled & { recursive?: boolean | undefined } = {},
  ): AsyncGenerator<FileEvent, void, undefined> {
    const answer = await this.#transport.stream("GET", `${this.#base}/watch`, {
      query: { path, recursive: options.recursive },
      headers: { accept: "text/event-stream" },
      signal: options.signal,
      repeatable: true,
    });
    for await (const { data } of serverEvents<FileEvent>(answer, options.signal)) yield data;
    throw lostConnection("the server let the stream end");
  }

  /** Files by name and content, as they are found. */
  async *search(options: SearchOptions): AsyncGenerator<api.SearchHit, void, undefined> {
    const answer = await this.#transport.stream("GET", `${this.#base}/search`, {
      query: {
        path: options.path,
        name: options.name,
        content: options.content,
        regex: options.regex,
        ignore_case: options.ignoreCase,
        max_depth: options.maxDepth,
        max_results: options.maxResults,
      },
      headers: { accept: "application/x-ndjson" },
      signal: options.signal,
      repeatable: true,
    });
    yield* jsonLines<api.SearchHit>(answer, options.signal);
  }

  /** A tree as one archive, as it comes. */
  async readArchive(
    path = ".",
    options: Signalled & { format?: ArchiveFormat | undefined } = {},
  ): Promise<ReadableStream<Uint8Array>> {
    return webStream(await this.#archive(path, options.format, options.signal), options.signal);
  }

  /** Unpacks an archive below a directory. */
  async writeArchive(
    path: string,
    archive: Content,
    options: Signalled & { format?: ArchiveFormat | undefined } = {},
  ): Promise<api.WriteArchiveResponse> {
    return await this.#transport.json("PUT", `${this.#base}/archive`, {
      query: { path, format: options.format },
      body: bodyOf(archive),
      signal: options.signal,
    });
  }

  /** Copies a directory of this machine, with all that is in it, below a directory of the sandbox. */
  async upload(directory: string, path: string, options: Signalled = {}): Promise<TreeReport> {
    const left = { skipped: 0 };
    const { files, directories, links, bytes } = await this.writeArchive(path, packTree(directory, left), {
      signal: options.signal,
    });
    return { files, directories, links, bytes, ...left };
  }

  /**
   * Copies a directory of the sandbox, with all that is in it, below a directory of this machine. What the sandbox
   * sends is not trusted: nothing is written outside, no link is followed, and only files, directories and links that
   * stay inside are made.
   */
  async download(path: string, directory: string, options: Signalled = {}): Promise<TreeReport> {
    const answer = await this.#archive(path, "tar", options.signal);
    try {
      return await unpackTree(pieces(answer, options.signal), directory);
    } finally {
      answer.destroy();
    }
  }

  async #archive(
    path: string,
    format: ArchiveFormat | undefined,
    signal: AbortSignal | undefined,
  ): Promise<IncomingMessage> {
    return await this.#transport.stream("GET", `${this.#base}/archive`, {
      query: { path, format },
      signal,
      repeatable: true,
    });
  }

  #reading(
    path: string,
    { offset, length, signal }: ReadOptions,
  ): { query: { path: string }; headers: Record<string, string>; signal: AbortSignal | undefined; repeatable: true } {
    const start = offset ?? 0;
    const partial = start > 0 || length !== undefined;
    const headers: Record<string, string> = partial
      ? { range: `bytes=${start}-${length === undefined ? "" : start + length - 1}` }
      : {};
    return { query: { path }, headers, signal, repeatable: true };
  }

  async #post<T>(suffix: string, json: unknown, options: Signalled, repeatable: boolean): Promise<T> {
    return await this.#transport.json<T>("POST", this.#base + suffix, { json, signal: options.signal, repeatable });
  }
}

function bodyOf(content: Content): Body {
  return content instanceof Blob ? content.stream() : content;
}

async function* pieces(
  answer: IncomingMessage,
  signal: AbortSignal | undefined,
): AsyncGenerator<Uint8Array, void, undefined> {
  try {
    for await (const piece of answer) yield piece as Uint8Array;
  } catch (error) {
    throw signal?.aborted ? abortedBy(signal) : lostConnection(error);
  }
}

function webStream(answer: IncomingMessage, signal: AbortSignal | undefined): ReadableStream<Uint8Array> {
  return Readable.toWeb(Readable.from(pieces(answer, signal), { objectMode: false })) as ReadableStream<Uint8Array>;
}
