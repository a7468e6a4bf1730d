// The conversation in which the server asks this process: one WebSocket per sandbox, for tools, connections and HTTP
// requests and secrets alike.
//
// Whatever goes wrong here denies: an exception, an answer that comes too late, a connection that is lost. A lost
// connection is made anew and offers the same; what was asked over the old one is answered by nobody.
import { type BelljarError, errorOf } from "./errors.js";
import { Patience, isLoss } from "./retry.js";
import type { Transport } from "./transport.js";
import { WebSocketConnection } from "./websocket.js";
import { fromWire, toWire } from "./wire.js";

/** What this process offers to answer. */
export interface Offer {
  readonly tools: readonly { readonly name: string; readonly description: string; readonly inputSchema: string }[];
  readonly decidesConnections: boolean;
  readonly handlesRequests: boolean;
  readonly secrets: readonly string[];
}

/** A question of the server: exactly one of `tool`, `connection`, `request` and `secret` is there. */
export interface Call {
  readonly callId: number;
  readonly sandboxId: string;
  readonly deadlineMs: number;
  readonly tool: { readonly name: string; readonly arguments: string; readonly processId: string | null } | null;
  readonly connection: ConnectionCall | null;
  readonly request: RequestCall | null;
  readonly secret: { readonly name: string } | null;
}

export interface WireEndpoint {
  readonly ip: string;
  readonly port: number;
}

export interface WireTls {
  readonly sni: string | null;
  readonly alpn: readonly string[];
}

export interface ConnectionCall {
  readonly transport: "tcp" | "udp";
  readonly source: WireEndpoint | null;
  readonly destination: WireEndpoint | null;
  readonly host: string | null;
  readonly dns: { readonly name: string; readonly type: string } | null;
  readonly tls: WireTls | null;
  readonly rule: string | null;
}

export interface RequestCall {
  readonly method: string;
  readonly url: string;
  readonly protocol: "http/1.1" | "h2";
  readonly headers: readonly { readonly name: string; readonly value: string }[];
  readonly source: WireEndpoint | null;
  readonly destination: WireEndpoint | null;
  readonly host: string | null;
  readonly tls: WireTls | null;
}

/** What an answer says beside the number of its call. */
export interface Answer {
  readonly toolResult?: { readonly json: string };
  readonly connection?: {
    readonly allow: boolean;
    readonly reason: string;
    readonly scope?: "once" | "sandbox";
    readonly http?: boolean;
    readonly resolver?: string;
  };
  readonly secret?: { readonly value: string };
  readonly request?: {
    readonly allow: boolean;
    readonly reason: string;
    readonly setHeaders?: readonly { readonly name: string; readonly value: string }[];
    readonly removeHeaders?: readonly string[];
  };
}

/** Answers a call. The signal fires when the answer is no longer wanted. */
export type Answerer = (call: Call, signal: AbortSignal) => Promise<Answer>;

interface ServerCallback {
  readonly ready: { readonly sandboxId: string } | null;
  readonly call: Call | null;
  readonly cancel: { readonly callId: number } | null;
  readonly problem: { readonly code: string; readonly message: string } | null;
}

/**
 * Failures that pass for who comes again with what was agreed on: a server that lost us lets go before long of what it still
 * holds, and the quota has room again.
 */
const PASSING: ReadonlySet<string> = new Set(["callback-exists", "rate-limited"]);

export class Conversation {
  readonly #transport: Transport;
  readonly #sandboxId: string;
  readonly #answer: Answerer;
  readonly #under = new Map<number, AbortController>();
  #offer: Offer;
  /** What the server took last. */
  #taken: Offer | undefined;
  /** Each change of the offer has a number. */
  #changes = 1;
  /** What the server was told and has not answered yet. */
  #told: { number: number; offer: Offer }[] = [];
  #connection: WebSocketConnection | undefined;
  #closed = false;
  /** Who waits for the server's word on what is offered. */
  #waiting: { number: number; resolve: () => void; reject: (error: unknown) => void }[] = [];
  /** Why nothing is offered any more. */
  #over: { error: unknown } | undefined;
  /** Done when nothing is offered any more. */
  readonly ended: Promise<void>;

  private constructor(transport: Transport, sandboxId: string, offer: Offer, answer: Answerer) {
    this.#transport = transport;
    this.#sandboxId = sandboxId;
    this.#offer = offer;
    this.#answer = answer;
    this.ended = this.#talk();
  }

  /** Done when the server asks here from now on. */
  static async begin(transport: Transport, sandboxId: string, offer: Offer, answer: Answerer): Promise<Conversation> {
    const conversation = new Conversation(transport, sandboxId, offer, answer);
    await conversation.#ready();
    return conversation;
  }

  /** Offers this in place of what was offered before. */
  async replace(offer: Offer): Promise<void> {
    this.#offer = offer;
    this.#changes += 1;
    // Whoever reads hears of a connection that is lost, and offers this over the next one.
    const hello = this.#connection === undefined ? undefined : this.#hello(this.#connection).catch(() => undefined);
    await Promise.all([this.#ready(), hello]);
  }

  /** Answers nothing more. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#connection?.close();
    this.#under.forEach((call) => call.abort());
    await this.ended;
  }

  async #ready(): Promise<void> {
    if (this.#over !== undefined) throw this.#over.error;
    const number = this.#changes;
    await new Promise<void>((resolve, reject) => this.#waiting.push({ number, resolve, reject }));
  }

  /** To the end of the sandbox, or until nothing more is offered. */
  async #talk(): Promise<void> {
    const patience = new Patience();
    while (!this.#closed) {
      try {
        const connection = await WebSocketConnection.connect(this.#transport, "/v1/callbacks");
        this.#connection = connection;
        // Who closed meanwhile found no connection to close.
        if (this.#closed) connection.close();
        else await this.#introduce(connection);
        for await (const message of connection) {
          if (typeof message !== "string") continue;
          const said = fromWire<ServerCallback>(JSON.parse(message));
          if (said.problem) throw errorOf(said.problem);
          if (said.ready) {
            this.#take();
            patience.progress();
          }
          if (said.cancel) this.#under.get(said.cancel.callId)?.abort();
          if (said.call) void this.#reply(connection, said.call);
        }
        if (!this.#closed) throw errorOf({ code: "server-stopping", message: "the server ended the conversation" });
      } catch (error) {
        // The server answers in the order in which it was told.
        const [refused] = this.#told;
        this.#lose();
        if (this.#closed || this.#taken === undefined) return this.#fail(error);
        if (refused !== undefined && refused.offer !== this.#taken && !isLoss(error)) {
          // What was offered anew is refused; what was offered before stands.
          this.#offer = this.#taken;
          this.#refuse(error);
          continue;
        }
        const again = isLoss(error) || PASSING.has((error as BelljarError).code);
        if (!again) return this.#fail(error);
        try {
          await patience.wait(error, undefined);
        } catch {
          return this.#fail(error);
        }
      }
    }
    this.#fail(errorOf({ code: "interrupted", message: "the conversation was closed" }));
  }

  /** The server answers in the order in which it was told. */
  #take(): void {
    const told = this.#told.shift();
    if (told === undefined) return;
    this.#taken = told.offer;
    const known = this.#waiting.filter(({ number }) => number <= told.number);
    this.#waiting = this.#waiting.filter(({ number }) => number > told.number);
    known.forEach(({ resolve }) => resolve());
  }

  #refuse(error: unknown): void {
    this.#waiting.splice(0).forEach(({ reject }) => reject(error));
  }

  #lose(): void {
    this.#connection?.close();
    this.#connection = undefined;
    this.#told = [];
    this.#under.forEach((call) => call.abort());
    this.#under.clear();
  }

  #fail(error: unknown): void {
    this.#lose();
    this.#over = { error };
    this.#refuse(error);
  }

  /**
   * What was agreed on comes first: until the server has seen the old connection go, it refuses that, and what is new is
   * none the worse for it.
   */
  async #introduce(connection: WebSocketConnection): Promise<void> {
    const agreed = this.#taken;
    // Nobody waits for a change of that number.
    const first = agreed === undefined || agreed === this.#offer ? [] : [this.#hello(connection, 0, agreed)];
    await Promise.all([...first, this.#hello(connection)]);
  }

  async #hello(connection: WebSocketConnection, number = this.#changes, offer = this.#offer): Promise<void> {
    this.#told.push({ number, offer });
    const hello = { ...offer, sandboxId: this.#sandboxId };
    await connection.send(JSON.stringify(toWire({ hello })));
  }

  async #reply(connection: WebSocketConnection, call: Call): Promise<void> {
    const { callId } = call;
    const wanted = new AbortController();
    this.#under.set(callId, wanted);
    const late = setTimeout(() => wanted.abort(), call.deadlineMs);
    let answer: object;
    try {
      answer = await this.#answer(call, wanted.signal);
    } catch (error) {
      answer = { toolError: { message: error instanceof Error ? error.message : String(error) } };
    } finally {
      clearTimeout(late);
      if (this.#under.get(callId) === wanted) this.#under.delete(callId);
    }
    if (wanted.signal.aborted) return;
    // Where the connection is lost, so is the question.
    await connection.send(JSON.stringify(toWire({ answer: { callId, ...answer } }))).catch(() => undefined);
  }
}
