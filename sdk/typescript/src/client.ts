// The client: one server, and what it has.
import { type AuditOptions, Keys, Tenants, Webhooks, readAudit } from "./administration.js";
import { type ClientOptions, transportOf } from "./connect.js";
import { lostConnection } from "./errors.js";
import type * as api from "./generated/api.js";
import { Policies } from "./policy.js";
import { Process } from "./process.js";
import { type Approval, listApprovals } from "./reach.js";
import { Patience, isLoss } from "./retry.js";
import { type ListProcessesOptions, type SignalOptions, listProcesses } from "./sandbox.js";
import { Sandboxes } from "./sandboxes.js";
import { SecretStore } from "./secrets.js";
import { Snapshots } from "./snapshots.js";
import { jsonLines, serverEvents } from "./sse.js";
import type { Transport } from "./transport.js";

export interface EventOptions extends SignalOptions {
  /** Events after this number. Absent: from now on. */
  readonly since?: number | undefined;
  /** Only of this sandbox, by name or id. */
  readonly sandbox?: string | undefined;
  /** Absent: all kinds. */
  readonly kinds?: readonly api.EventKind[] | undefined;
}

/** How far one part of an image is; bytes `of` how many, while they come. */
export interface FetchStep {
  readonly part: string;
  readonly state: "waiting" | "coming" | "unpacking" | "done";
  readonly bytes: number | null;
  readonly of: number | null;
}

/**
 * A server and what it has: without arguments that of `BELLJAR_SERVER`, or the server of this machine, which is started
 * where none runs. Connecting is left to the first request.
 */
export class Belljar implements AsyncDisposable {
  readonly #transport: Transport;
  readonly sandboxes: Sandboxes;
  readonly snapshots: Snapshots;
  readonly policies: Policies;
  readonly secrets: SecretStore;
  /** For administrators. */
  readonly keys: Keys;
  /** For administrators. */
  readonly tenants: Tenants;
  readonly webhooks: Webhooks;

  constructor(server?: string | ClientOptions) {
    this.#transport = transportOf(server);
    this.sandboxes = new Sandboxes(this.#transport);
    this.snapshots = new Snapshots(this.#transport);
    this.policies = new Policies(this.#transport);
    this.secrets = new SecretStore(this.#transport);
    this.keys = new Keys(this.#transport);
    this.tenants = new Tenants(this.#transport);
    this.webhooks = new Webhooks(this.#transport);
  }

  /** A process of any client, to follow, type to or end. */
  async process(id: string, options: SignalOptions = {}): Promise<Process> {
    const info = await this.#get<api.Process>(`/v1/processes/${encodeURIComponent(id)}`, options);
    return new Process(this.#transport, info);
  }

  /** Processes, newest first. */
  async processes(options: ListProcessesOptions = {}): Promise<Process[]> {
    return await listProcesses(this.#transport, options);
  }

  /** Connections and requests that wait for somebody to allow them. */
  async approvals(options: SignalOptions & { sandbox?: string | undefined } = {}): Promise<Approval[]> {
    return await listApprovals(this.#transport, options);
  }

  /** What happens to sandboxes and processes, as it happens. Goes on after a loss of the connection. */
  async *events(options: EventOptions = {}): AsyncGenerator<api.Event, void, undefined> {
    const { signal } = options;
    const patience = new Patience();
    let since = options.since;
    for (;;) {
      try {
        const answer = await this.#transport.stream("GET", "/v1/events", {
          query: { since, sandbox: options.sandbox, kind: options.kinds },
          headers: { accept: "text/event-stream" },
          signal,
          repeatable: true,
        });
        patience.connected();
        for await (const { data } of serverEvents<api.Event>(answer, signal)) {
          patience.progress();
          since = data.seq;
          yield data;
        }
        throw lostConnection("the server let the stream end");
      } catch (error) {
        if (!isLoss(error)) throw error;
        await patience.wait(error, signal);
      }
    }
  }

  /** What has happened so far, oldest first, as far as it is kept. */
  async history(options: EventOptions = {}): Promise<api.Event[]> {
    const events: api.Event[] = [];
    for (let since = options.since; ; since = events.at(-1)?.seq) {
      const page: api.EventPage = await this.#transport.json("GET", "/v1/events", {
        query: { since, sandbox: options.sandbox, kind: options.kinds },
        signal: options.signal,
        repeatable: true,
      });
      events.push(...page.events);
      if (!page.more) return events;
    }
  }

  /** Who did what to which sandbox, and what came of it, oldest first. */
  audit(options: AuditOptions = {}): AsyncGenerator<api.AuditRecord, void, undefined> {
    return readAudit(this.#transport, options);
  }

  /** The server itself. */
  async server(options: SignalOptions = {}): Promise<api.Server> {
    return await this.#get("/v1/server", options);
  }

  /** Who this client is to the server. */
  async caller(options: SignalOptions = {}): Promise<api.Caller> {
    return await this.#get("/v1/caller", options);
  }

  /** Tries every backend, or one, by running a tiny sandbox on it; with `refresh` also where it is known already. */
  async probe(
    options: SignalOptions & { backend?: string | undefined; refresh?: boolean | undefined } = {},
  ): Promise<api.Probe[]> {
    const { backend, refresh, signal } = options;
    const ask = { query: { backend, refresh }, signal, repeatable: true };
    return (await this.#transport.json<api.ProbeBackendsResponse>("GET", "/v1/probe", ask)).probes;
  }

  /** For administrators: looks for what no sandbox owns any more, and with `fix` removes it. */
  async findLeaks(options: SignalOptions & { fix?: boolean | undefined } = {}): Promise<api.FindLeaksResponse> {
    const ask = { json: { fix: options.fix }, signal: options.signal, repeatable: true };
    return await this.#transport.json("POST", "/v1/leaks", ask);
  }

  /** For administrators: drains the server and stops it. Sandboxes stay. */
  async stopServer(options: SignalOptions = {}): Promise<void> {
    await this.#transport.json("POST", "/v1/server/stop", { json: {}, signal: options.signal });
  }

  /** What sandboxes can start from. */
  async templates(options: SignalOptions = {}): Promise<api.Template[]> {
    return (await this.#get<api.ListTemplatesResponse>("/v1/templates", options)).templates;
  }

  /**
   * Fetches the image that a template names, where the backend has images; ends when it is there. Nothing is fetched for
   * other templates, and without a backend.
   */
  async *fetchTemplate(
    template: string,
    options: SignalOptions & { backend?: string | undefined } = {},
  ): AsyncGenerator<FetchStep, void, undefined> {
    const { backend, signal } = options;
    const answer = await this.#transport.stream("POST", "/v1/templates/fetch", { json: { template, backend }, signal });
    yield* jsonLines<FetchStep>(answer, signal);
  }

  /** Network policies with a name. */
  async profiles(options: SignalOptions = {}): Promise<api.Profile[]> {
    return (await this.#get<api.ListProfilesResponse>("/v1/profiles", options)).profiles;
  }

  /** Closes the connections. Sandboxes and processes stay. */
  close(): void {
    this.#transport.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  async #get<T>(path: string, options: SignalOptions): Promise<T> {
    return await this.#transport.json<T>("GET", path, { signal: options.signal, repeatable: true });
  }
}
