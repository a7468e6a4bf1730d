// A command that was started: a durable object on the server. Whoever has its id can follow it from any offset, type
// to it and end it; losing the connection or the client ends nothing.
import { type StartOptions, type TerminalSize, signalNumber } from "./command.js";
import { TimedOutError, lostConnection, refuseAborted } from "./errors.js";
import type * as api from "./generated/api.js";
import { Patience, isLoss } from "./retry.js";
import { serverEvents } from "./sse.js";
import type { Transport } from "./transport.js";

/** The longest that one request may wait. */
const LONGEST_WAIT_SECS = 60;

/** A place in the two channels, counted in bytes from the start of the process. */
export interface Offsets {
  readonly stdout: number;
  readonly stderr: number;
}

/** A piece of what a process wrote. */
export interface Output {
  readonly channel: "stdout" | "stderr";
  /** Of the first byte. Larger than the end of the piece before: what lies between is no longer kept. */
  readonly offset: number;
  readonly data: Uint8Array;
}

export interface LogOptions {
  /** Where to begin: a number for both channels, or one for each. Absent: the oldest that is kept. */
  readonly since?: number | Partial<Offsets> | undefined;
  readonly channel?: "stdout" | "stderr" | undefined;
  /** Go on until the process ends. */
  readonly follow?: boolean | undefined;
  readonly signal?: AbortSignal | undefined;
}

export class Process implements AsyncIterable<Output> {
  readonly #transport: Transport;
  #info: api.Process;
  /** Input goes one piece after the other, however it is called. */
  #input: Promise<unknown> = Promise.resolve();

  /** @internal */
  constructor(transport: Transport, info: api.Process) {
    this.#transport = transport;
    this.#info = info;
  }

  get id(): string {
    return this.#info.processId;
  }

  get sandboxId(): string {
    return this.#info.sandboxId;
  }

  /** The record as it was seen last. */
  get info(): api.Process {
    return this.#info;
  }

  /** Absent while it runs. */
  get exitCode(): number | undefined {
    return this.#info.exitCode ?? undefined;
  }

  /** Looks again. */
  async refresh(options: { signal?: AbortSignal | undefined } = {}): Promise<api.Process> {
    return await this.#ask("GET", "", { signal: options.signal });
  }

  /**
   * Waits for the end, and gives the record with the exit code.
   * @throws {TimedOutError} when `timeout` seconds have passed; the process goes on.
   */
  async wait(options: { timeout?: number | undefined; signal?: AbortSignal | undefined } = {}): Promise<api.Process> {
    const deadline = options.timeout === undefined ? Infinity : Date.now() + options.timeout * 1000;
    for (;;) {
      const left = Math.max(0, (deadline - Date.now()) / 1000);
      const query = { timeout_secs: Math.min(left, LONGEST_WAIT_SECS) };
      const info = await this.#ask("GET", "/wait", { query, signal: options.signal });
      if (info.finishedAt !== null || info.reason !== null) return info;
      if (Date.now() >= deadline) {
        throw new TimedOutError({
          code: "timed-out",
          message: `process \`${this.id}\` did not end within ${options.timeout} seconds`,
          remedy: "wait longer, or cancel it",
        });
      }
    }
  }

  /** TERM to the process group, and KILL to the tree after `grace` seconds (absent: 5). */
  async cancel(options: { grace?: number | undefined; signal?: AbortSignal | undefined } = {}): Promise<api.Process> {
    return await this.#ask("POST", "/cancel", { json: { graceSecs: options.grace }, signal: options.signal });
  }

  /** Sends a signal to the process, by name or number. Never sent twice. */
  async signal(signal: NodeJS.Signals | number, options: { signal?: AbortSignal | undefined } = {}): Promise<void> {
    const ask = { json: { signal: signalNumber(signal) }, signal: options.signal };
    await this.#transport.json("POST", this.#path("/signal"), ask);
  }

  /** Changes the size of its terminal. */
  async resize(size: TerminalSize, options: { signal?: AbortSignal | undefined } = {}): Promise<void> {
    const ask = { json: { size }, signal: options.signal, repeatable: true };
    await this.#transport.json("POST", this.#path("/resize"), ask);
  }

  /** Writes to standard input; done when the process has been handed all of it. Never sent twice. */
  async write(data: string | Uint8Array, options: { signal?: AbortSignal | undefined } = {}): Promise<void> {
    await this.#queued({ body: data, signal: options.signal });
  }

  /** No more input comes. */
  async closeInput(options: { signal?: AbortSignal | undefined } = {}): Promise<void> {
    await this.#queued({ query: { close: true }, body: "", signal: options.signal });
  }

  /** Standard input as a web stream. */
  get stdin(): WritableStream<string | Uint8Array> {
    return new WritableStream({
      write: async (chunk) => await this.write(chunk),
      close: async () => await this.closeInput(),
    });
  }

  /** Standard output, from its beginning to the end of the process, as a web stream. */
  get stdout(): ReadableStream<Uint8Array> {
    return this.#channel("stdout");
  }

  /** Standard error, likewise. */
  get stderr(): ReadableStream<Uint8Array> {
    return this.#channel("stderr");
  }

  /** All output as it comes, from the oldest byte that is kept to the end of the process. */
  [Symbol.asyncIterator](): AsyncGenerator<Output, void, undefined> {
    return this.logs({ follow: true });
  }

  /**
   * What it wrote, from any offset. After a loss of the connection it goes on behind the last byte that came: nothing
   * is lost, nothing comes twice.
   */
  async *logs(options: LogOptions = {}): AsyncGenerator<Output, void, undefined> {
    const { signal } = options;
    const position = startOf(options.since);
    const patience = new Patience();
    for (;;) {
      try {
        refuseAborted(signal);
        const answer = await this.#transport.stream("GET", this.#path("/log"), {
          query: {
            since: `${position.stdout},${position.stderr}`,
            follow: options.follow === true,
            channel: options.channel,
          },
          headers: { accept: "text/event-stream" },
          signal,
          repeatable: true,
        });
        patience.connected();
        for await (const event of serverEvents<api.ProcessOutput>(answer, signal)) {
          patience.progress();
          if (event.data.ended) {
            this.#info = event.data.ended;
            return;
          }
          const output = outputOf(event.data, position);
          if (output !== undefined) yield output;
        }
        if (options.follow !== true) return;
        // A server that ends lets its streams end; the process goes on, and so do we.
        throw lostConnection("the server let the stream end");
      } catch (error) {
        if (!isLoss(error)) throw error;
        await patience.wait(error, signal);
      }
    }
  }

  /** Everything it wrote to a channel, to its end. */
  async text(
    channel: "stdout" | "stderr" = "stdout",
    options: { signal?: AbortSignal | undefined } = {},
  ): Promise<string> {
    const pieces: Uint8Array[] = [];
    for await (const { data } of this.logs({ channel, follow: true, signal: options.signal })) pieces.push(data);
    return Buffer.concat(pieces).toString("utf8");
  }

  #channel(channel: "stdout" | "stderr"): ReadableStream<Uint8Array> {
    const stop = new AbortController();
    const pieces = this.logs({ channel, follow: true, signal: stop.signal });
    return new ReadableStream<Uint8Array>(
      {
        async pull(controller) {
          const next = await pieces.next();
          if (next.done) controller.close();
          else controller.enqueue(next.value.data);
        },
        async cancel() {
          stop.abort();
          await pieces.return().catch(() => undefined);
        },
      },
      { highWaterMark: 0 },
    );
  }

  async #queued(ask: {
    query?: { close: boolean };
    body: string | Uint8Array;
    signal?: AbortSignal | undefined;
  }): Promise<void> {
    const turn = this.#input.then(async () => await this.#transport.json("POST", this.#path("/input"), ask));
    // The next piece has its own answer, whatever became of this one.
    this.#input = turn.catch(() => undefined);
    await turn;
  }

  async #ask(
    method: string,
    suffix: string,
    ask: { query?: { timeout_secs: number }; json?: unknown; signal?: AbortSignal | undefined },
  ): Promise<api.Process> {
    return (this.#info = await this.#transport.json<api.Process>(method, this.#path(suffix), {
      ...ask,
      repeatable: true,
    }));
  }

  #path(suffix: string): string {
    return `/v1/processes/${encodeURIComponent(this.id)}${suffix}`;
  }
}

function startOf(since: LogOptions["since"]): { stdout: number; stderr: number } {
  if (typeof since === "number") return { stdout: since, stderr: since };
  return { stdout: since?.stdout ?? 0, stderr: since?.stderr ?? 0 };
}

/** The part of a piece that has not come before; moves the position behind it. */
export function outputOf(piece: api.ProcessOutput, position: { stdout: number; stderr: number }): Output | undefined {
  const { channel } = piece;
  if (channel !== "stdout" && channel !== "stderr") return undefined;
  const whole = Buffer.from(piece.data, "base64");
  const seen = Math.max(0, position[channel] - piece.offset);
  if (whole.length <= seen) return undefined;
  const data = new Uint8Array(whole.buffer, whole.byteOffset + seen, whole.length - seen);
  position[channel] = piece.offset + whole.length;
  return { channel, offset: piece.offset + seen, data };
}

export type { StartOptions };
