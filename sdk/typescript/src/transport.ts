// Requests to a server: one connection pool, JSON in and out, streams as they come. Knows when a request may be sent
// again; knows nothing of what the requests mean.
import type { ClientRequest, IncomingMessage, OutgoingHttpHeaders, RequestOptions } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { setImmediate as breathe } from "node:timers/promises";
import { type Address, addressOf } from "./address.js";
import { BelljarError, ServerUnreachableError, abortedBy, errorOf, lostConnection, refuseAborted } from "./errors.js";
import { type GrpcCall, openCall } from "./grpc.js";
import { type LocalOptions, findOrStart } from "./local.js";
import { Patience, isLoss, mayHaveHappened } from "./retry.js";
import { fromWire, toWire } from "./wire.js";

export const VERSION = "0.1.0";

/** What a problem's body may have at most. */
const LONGEST_PROBLEM = 1 << 20;

/** From this size on a body is only sent once the server wants it. */
const LARGE = 1 << 20;
/** Something between us and the server may not know how to ask for a body. */
const ASKED_FOR_MS = 1_000;

/** Values of a query; lists repeat, `undefined` is left out. */
export type Query = Record<string, string | number | boolean | readonly string[] | undefined>;

/** What is sent as a body: whole, or as it comes. */
export type Body = string | Uint8Array | AsyncIterable<Uint8Array | string>;

export interface Ask {
  readonly query?: Query | undefined;
  /** Sent as JSON, with the names of the wire. */
  readonly json?: unknown;
  /** Sent as it is. */
  readonly body?: Body | undefined;
  readonly headers?: OutgoingHttpHeaders | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Doing it twice is the same as doing it once. */
  readonly repeatable?: boolean | undefined;
}

export interface TransportOptions extends LocalOptions {
  readonly url?: string | undefined;
  readonly apiKey?: string | undefined;
  readonly ca?: string | Buffer | undefined;
}

export class Transport {
  readonly #options: TransportOptions;
  #address: Promise<Address> | undefined;
  /** What that promise ended with. */
  #current: Address | undefined;
  #closed = false;
  /** Connections that speak something else by now, and what listens. */
  readonly #held = new Set<{ destroy(): unknown }>();

  constructor(options: TransportOptions) {
    this.#options = options;
    // A given address is wrong at once or never; the local server is looked for when it is needed.
    if (options.url !== undefined) this.#address = Promise.resolve(addressOf(options.url, options));
  }

  /** Asks, and reads the answer as JSON. */
  async json<T>(method: string, path: string, ask: Ask = {}): Promise<T> {
    return await this.#again(ask, async () => {
      const answer = await this.#send(method, path, ask);
      return fromWire<T>(JSON.parse((await collect(answer, ask.signal)).toString("utf8")));
    });
  }

  /** Asks, and reads the answer as bytes. */
  async bytes(method: string, path: string, ask: Ask = {}): Promise<Buffer> {
    return await this.#again(ask, async () => await collect(await this.#send(method, path, ask), ask.signal));
  }

  /** Asks once, and gives the answer as it comes. */
  async open(method: string, path: string, ask: Ask = {}): Promise<IncomingMessage> {
    return await this.#send(method, path, ask);
  }

  /** Asks, again if need be, and gives the answer as it comes. */
  async stream(method: string, path: string, ask: Ask = {}): Promise<IncomingMessage> {
    return await this.#again(ask, async () => await this.#send(method, path, ask));
  }

  /** Changes the protocol of a connection, for a WebSocket. */
  async upgrade(
    path: string,
    headers: OutgoingHttpHeaders,
    signal?: AbortSignal,
  ): Promise<{ answer: IncomingMessage; socket: Duplex; head: Buffer }> {
    const address = await this.#resolve();
    return await new Promise((resolve, reject) => {
      // A connection of its own: it never goes back to the pool.
      const request = address.request({
        ...this.#line(address, "GET", path, {}, headers),
        agent: false,
        ...(signal ? { signal } : {}),
      });
      request.once("upgrade", (answer, socket, head) => {
        socket.once("close", this.hold(socket));
        resolve({ answer, socket, head });
      });
      request.once("response", (answer) => {
        problemOf(answer).then(reject, reject);
      });
      request.once("error", (error) => reject(this.#lost(error, address, signal, false)));
      request.end();
    });
  }

  /** Begins a gRPC call of two streams on a connection of its own. */
  async call(path: string): Promise<GrpcCall> {
    const address = await this.#resolve();
    const key = this.#options.apiKey;
    const headers = {
      "user-agent": `belljar-typescript/${VERSION}`,
      ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
    };
    const call = await openCall(address, path, headers).catch((error: unknown) => {
      throw this.#lost(error instanceof Error ? error : new Error(String(error)), address, undefined, false);
    });
    call.session.once("close", this.hold(call.session));
    return call;
  }

  /** Ends this with the client, unless it was let go. */
  hold(thing: { destroy(): unknown }): () => void {
    if (this.#closed) thing.destroy();
    else this.#held.add(thing);
    return () => void this.#held.delete(thing);
  }

  close(): void {
    this.#closed = true;
    this.#held.forEach((thing) => thing.destroy());
    this.#address?.then(
      (address) => address.close(),
      () => undefined,
    );
    this.#address = undefined;
  }

  /** Repeats what may be repeated while the server may come back. */
  async #again<T>(ask: Ask, attempt: () => Promise<T>): Promise<T> {
    const patience = new Patience();
    let lost = false;
    for (;;) {
      try {
        return await attempt();
      } catch (error) {
        const whole = ask.body === undefined || typeof ask.body === "string" || ask.body instanceof Uint8Array;
        const again = mayHaveHappened(error) ? ask.repeatable === true && whole : isLoss(error) && whole;
        // Nobody was ever there: that is for the caller to know at once, unless we can start one.
        const never =
          !lost &&
          error instanceof ServerUnreachableError &&
          !mayHaveHappened(error) &&
          this.#options.url !== undefined;
        if (!again || never || this.#closed) throw error;
        lost = true;
        await patience.wait(error, ask.signal);
      }
    }
  }

  async #send(method: string, path: string, ask: Ask): Promise<IncomingMessage> {
    refuseAborted(ask.signal);
    const address = await this.#resolve();
    const answer = await new Promise<IncomingMessage>((resolve, reject) => {
      const { content, headers } = payload(ask);
      const options = this.#line(address, method, path, ask.query ?? {}, { ...headers, ...ask.headers });
      // What cannot be sent twice gets a connection of its own: one from the pool may be about to close.
      const agent = headers["expect"] === undefined ? address.agent : false;
      const request = address.request({ ...options, agent, ...(ask.signal ? { signal: ask.signal } : {}) });
      let connected = false;
      request.once("socket", (socket) => {
        prepare(socket);
        // With TLS there is a connection once the other side has shown who it is.
        const event = "encrypted" in socket ? "secureConnect" : "connect";
        if (socket.connecting) socket.once(event, () => (connected = true));
        else connected = true;
      });
      request.on("error", (error) => reject(this.#lost(error, address, ask.signal, connected)));
      const send = (): void => sendBody(request, content, reject);
      if (headers["expect"] === undefined) {
        request.once("response", resolve);
        send();
        return;
      }
      // A server that refuses says so before anything large was sent for nothing.
      const late = setTimeout(send, ASKED_FOR_MS);
      const asked = (): void => {
        clearTimeout(late);
        send();
      };
      request.once("continue", asked);
      request.once("close", () => clearTimeout(late));
      request.once("response", (answer) => {
        clearTimeout(late);
        request.off("continue", asked);
        // What was not sent by now is not sent any more.
        answer.once("end", () => request.writableFinished || request.destroy());
        resolve(answer);
      });
    });
    if ((answer.statusCode ?? 500) < 400) return answer;
    throw await problemOf(answer);
  }

  #line(address: Address, method: string, path: string, query: Query, headers: OutgoingHttpHeaders): RequestOptions {
    const key = this.#options.apiKey;
    return {
      ...address.options,
      method,
      path: path + written(query),
      headers: {
        "user-agent": `belljar-typescript/${VERSION}`,
        ...(address.options.socketPath === undefined ? {} : { host: "belljar.localhost" }),
        ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
        ...headers,
      },
    };
  }

  async #resolve(): Promise<Address> {
    if (this.#closed) throw errorOf({ code: "interrupted", message: "this client was closed" });
    const address = (this.#address ??= findOrStart(this.#options).then((found) => addressOf(found)));
    try {
      const found = await address;
      if (this.#address === address) this.#current = found;
      return found;
    } catch (error) {
      if (this.#address === address) this.#address = undefined;
      throw error;
    }
  }

  #lost(error: Error, address: Address, signal: AbortSignal | undefined, connected: boolean): BelljarError {
    if (signal?.aborted) return abortedBy(signal);
    if (connected) return lostConnection(error);
    // A local server that ended is looked for, or started, anew; once, however many find it gone.
    if (this.#options.url === undefined && this.#current === address) {
      [this.#address, this.#current] = [undefined, undefined];
      address.close();
    }
    return new ServerUnreachableError({
      code: "server-unreachable",
      message: `there is no server at \`${address.text}\`, or it does not answer`,
      cause: error,
      remedy: "check the address, and that `belljar serve` runs there",
    });
  }
}

function sendBody(request: ClientRequest, content: Body | undefined, fail: (error: unknown) => void): void {
  if (content === undefined || typeof content === "string" || content instanceof Uint8Array) {
    request.end(content);
    return;
  }
  pump(request, content).catch((error: unknown) => {
    request.destroy();
    fail(error);
  });
}

/** Sends piece by piece, and listens between them: a server that refuses in the middle gets no more. */
async function pump(request: ClientRequest, content: AsyncIterable<Uint8Array | string>): Promise<void> {
  let answered = false;
  request.once("response", () => (answered = true));
  for await (const piece of content) {
    const failed = await new Promise<unknown>((resolve) => request.write(piece, resolve));
    await breathe();
    if (failed || answered || request.destroyed) return;
  }
  request.end();
}

const prepared = new WeakSet<Socket>();

/**
 * A server that refuses in the middle of a body says why and hangs up. The socket would be torn down by the first write
 * that fails, with the answer unread in it; so a failed write is no failure, and reading tells how it ends. Whoever uses
 * a connection is told of its failures; one that nobody uses any more must not end the program.
 */
function prepare(socket: Socket): void {
  if (prepared.has(socket)) return;
  prepared.add(socket);
  socket.on("error", () => undefined);
  type Done = (error?: Error | null) => void;
  const tolerant =
    (done: Done): Done =>
    (error) => {
      const code = (error as NodeJS.ErrnoException | null | undefined)?.code;
      done(code === "EPIPE" || code === "ECONNRESET" ? null : error);
    };
  const { _write: write, _writev: writev } = socket;
  socket._write = (chunk, encoding, done) => write.call(socket, chunk, encoding, tolerant(done));
  if (writev) socket._writev = (chunks, done) => writev.call(socket, chunks, tolerant(done));
}

/** The whole answer, or the failure that cut it short. */
async function collect(answer: IncomingMessage, signal: AbortSignal | undefined): Promise<Buffer> {
  const pieces: Buffer[] = [];
  try {
    for await (const piece of answer) pieces.push(piece as Buffer);
  } catch (error) {
    if (signal?.aborted) throw abortedBy(signal);
    throw lostConnection(error);
  }
  return Buffer.concat(pieces);
}

async function problemOf(answer: IncomingMessage): Promise<BelljarError> {
  const status = answer.statusCode ?? 0;
  const pieces: Buffer[] = [];
  let size = 0;
  try {
    for await (const piece of answer) {
      size += (piece as Buffer).length;
      if (size > LONGEST_PROBLEM) break;
      pieces.push(piece as Buffer);
    }
    const after = Number(answer.headers["retry-after"]);
    const problem = fromWire<{ code: string; message: string }>(JSON.parse(Buffer.concat(pieces).toString("utf8")));
    if (typeof problem.code === "string")
      return errorOf({ ...problem, retryAfter: Number.isFinite(after) ? after : undefined });
  } catch (error) {
    if (status === 0) return lostConnection(error);
  }
  // Whatever answers here is no server of ours.
  return errorOf({
    code: "server-unreachable",
    message: `what answers there with status ${status} is no Belljar server`,
    remedy: "check the address",
  });
}

function payload(ask: Ask): { content: Body | undefined; headers: OutgoingHttpHeaders } {
  if (ask.json !== undefined) {
    const content = JSON.stringify(toWire(ask.json));
    return { content, headers: { "content-type": "application/json", "content-length": Buffer.byteLength(content) } };
  }
  if (ask.body === undefined) return { content: undefined, headers: {} };
  const headers: OutgoingHttpHeaders = { "content-type": "application/octet-stream" };
  const length =
    typeof ask.body === "string" || ask.body instanceof Uint8Array ? Buffer.byteLength(ask.body) : undefined;
  if (length !== undefined) headers["content-length"] = length;
  if (length === undefined || length >= LARGE) headers["expect"] = "100-continue";
  return { content: ask.body, headers };
}

function written(query: Query): string {
  const pairs = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined) continue;
    for (const one of Array.isArray(value) ? (value as readonly string[]) : [value]) pairs.append(name, String(one));
  }
  return pairs.size === 0 ? "" : `?${pairs.toString()}`;
}
