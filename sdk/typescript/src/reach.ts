// What a sandbox reaches: looked at, changed while it runs, and on record.
import type * as api from "./generated/api.js";
import { jsonLines, serverEvents } from "./sse.js";
import type { Transport } from "./transport.js";

interface Signalled {
  readonly signal?: AbortSignal | undefined;
}

/** Changes to what a sandbox may reach. What is absent stays. */
export interface NetworkChange {
  readonly mode?: "none" | "allowlist" | "full" | undefined;
  /** Allowed in place of everything that was allowed and denied. */
  readonly replace?: readonly string[] | undefined;
  /** Allowed too. */
  readonly allow?: readonly string[] | undefined;
  /** Denied, even where a wider entry or the mode would allow it. */
  readonly deny?: readonly string[] | undefined;
  /** The ranges of addresses that are not public and may be reached. */
  readonly cidrs?: readonly string[] | undefined;
  /** Seconds that what nothing allows waits for somebody to allow it. 0: it is denied at once. */
  readonly ask?: number | undefined;
}

/** One decision and what came of it. */
export interface NetworkDecision {
  readonly at: string | null;
  readonly stage: "flow" | "dns" | "request";
  readonly transport: "tcp" | "udp";
  readonly host: string | null;
  readonly address: string | null;
  readonly port: number;
  /** The name that the client sent in TLS. */
  readonly sni: string | null;
  readonly method: string | null;
  readonly path: string | null;
  /** The rule or entry that decided. */
  readonly rule: string | null;
  readonly verdict: "allow" | "deny";
  /** Why, in a stable word. */
  readonly reason: string;
  readonly bytesUp: number;
  readonly bytesDown: number;
  readonly durationMs: number;
  /** The process in the sandbox that made the connection, where that is known. A hint, like what follows. */
  readonly pid: number | null;
  /** Its short name, which it chooses itself. */
  readonly program: string | null;
  /** The process that was started here and that it belongs to. */
  readonly processId: string | null;
}

/** The network of one sandbox. */
export class SandboxNetwork {
  readonly #transport: Transport;
  readonly #path: string;

  /** @internal */
  constructor(transport: Transport, sandboxId: string) {
    this.#transport = transport;
    this.#path = `/v1/sandboxes/${encodeURIComponent(sandboxId)}/network`;
  }

  /** What may be reached, and what enforces it. */
  async show(options: Signalled = {}): Promise<api.SandboxNetwork> {
    return await this.#transport.json("GET", this.#path, { signal: options.signal, repeatable: true });
  }

  /** Allows these too: `host`, `*.domain` or `host:port`. */
  async allow(...entries: string[]): Promise<api.SandboxNetwork>;
  async allow(entries: readonly string[], options?: Signalled): Promise<api.SandboxNetwork>;
  async allow(...given: readonly unknown[]): Promise<api.SandboxNetwork> {
    const [allow, options] = entriesOf(given);
    return await this.change({ allow }, options);
  }

  /** Denies these from now on. Connections that are no longer allowed are cut. */
  async deny(...entries: string[]): Promise<api.SandboxNetwork>;
  async deny(entries: readonly string[], options?: Signalled): Promise<api.SandboxNetwork>;
  async deny(...given: readonly unknown[]): Promise<api.SandboxNetwork> {
    const [deny, options] = entriesOf(given);
    return await this.change({ deny }, options);
  }

  /** Changes what may be reached. Connections that are no longer allowed are cut. */
  async change(change: NetworkChange, options: Signalled = {}): Promise<api.SandboxNetwork> {
    const { mode, replace, allow, deny, cidrs, ask } = change;
    const entries = (list: readonly string[] | undefined): object | undefined =>
      list === undefined ? undefined : { entries: list };
    const json = { mode, replace: entries(replace), allow, deny, cidrs: entries(cidrs), askSecs: ask };
    return await this.#transport.json("POST", this.#path, { json, signal: options.signal, repeatable: true });
  }

  /** What it wanted to reach and what came of it, oldest first; with `follow` without end. */
  async *log(
    options: Signalled & { denied?: boolean | undefined; last?: number | undefined; follow?: boolean | undefined } = {},
  ): AsyncGenerator<NetworkDecision, void, undefined> {
    const { denied, last, follow, signal } = options;
    const query = { denied, last, follow };
    const answer = await this.#transport.stream("GET", `${this.#path}/log`, { query, signal, repeatable: true });
    if (follow !== true) return yield* jsonLines<NetworkDecision>(answer, signal);
    for await (const { data } of serverEvents<NetworkDecision>(answer, signal)) yield data;
  }
}

/** One by one, or as a list with options. */
function entriesOf(given: readonly unknown[]): [string[], Signalled | undefined] {
  const [first, second] = given;
  return Array.isArray(first) ? [first as string[], second as Signalled | undefined] : [given as string[], undefined];
}

/** Something that waits to be allowed. */
export class Approval {
  readonly #transport: Transport;
  readonly info: api.Approval;

  /** @internal */
  constructor(transport: Transport, info: api.Approval) {
    this.#transport = transport;
    this.info = info;
  }

  get id(): string {
    return this.info.approvalId;
  }

  /** `sandbox`: as long as the sandbox's network stays as it is; `always`: kept with the sandbox. */
  async answer(answer: "once" | "sandbox" | "always" | "deny", options: Signalled = {}): Promise<void> {
    const path = `/v1/approvals/${encodeURIComponent(this.id)}`;
    await this.#transport.json("POST", path, { json: { answer }, signal: options.signal });
  }
}

export async function listApprovals(
  transport: Transport,
  options: Signalled & { sandbox?: string | undefined },
): Promise<Approval[]> {
  const ask = { query: { sandbox: options.sandbox }, signal: options.signal, repeatable: true };
  const { approvals } = await transport.json<api.ListApprovalsResponse>("GET", "/v1/approvals", ask);
  return approvals.map((info) => new Approval(transport, info));
}
