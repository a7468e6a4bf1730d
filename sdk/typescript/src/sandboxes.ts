// The sandboxes of a server.
import type * as api from "./generated/api.js";
import { type CreateOptions, createRequest, pairs } from "./options.js";
import { Sandbox, type SignalOptions, createSandbox } from "./sandbox.js";
import type { Transport } from "./transport.js";

export interface ListOptions extends SignalOptions {
  /** All must match. */
  readonly labels?: Readonly<Record<string, string>> | undefined;
  readonly metadata?: Readonly<Record<string, string>> | undefined;
  /** Absent: those that have not ended. */
  readonly states?: readonly api.SandboxState[] | undefined;
  readonly namePrefix?: string | undefined;
  /** For administrators: only this tenant's. */
  readonly tenant?: string | undefined;
}

export class Sandboxes {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  async create(options: CreateOptions = {}): Promise<Sandbox> {
    return await this.#make(options, false);
  }

  /** The sandbox of that name, or a new one. */
  async getOrCreate(name: string, options: Omit<CreateOptions, "name"> = {}): Promise<Sandbox> {
    return await this.#make({ ...options, name }, true);
  }

  /** One sandbox, by name or id. */
  async get(nameOrId: string, options: SignalOptions = {}): Promise<Sandbox> {
    const path = `/v1/sandboxes/${encodeURIComponent(nameOrId)}`;
    const info = await this.#transport.json<api.Sandbox>("GET", path, { signal: options.signal, repeatable: true });
    return new Sandbox(this.#transport, info, undefined);
  }

  /** All that match, oldest first. */
  async list(options: ListOptions = {}): Promise<Sandbox[]> {
    const found: Sandbox[] = [];
    for await (const sandbox of this.iterate(options)) found.push(sandbox);
    return found;
  }

  /** The same, page by page. */
  async *iterate(options: ListOptions = {}): AsyncGenerator<Sandbox, void, undefined> {
    let token: string | undefined;
    do {
      const page: api.ListSandboxesResponse = await this.#transport.json("GET", "/v1/sandboxes", {
        query: {
          label: pairs(options.labels),
          metadata: pairs(options.metadata),
          state: options.states,
          name_prefix: options.namePrefix,
          tenant: options.tenant,
          page_size: 1000,
          page_token: token,
        },
        signal: options.signal,
        repeatable: true,
      });
      yield* page.sandboxes.map((info) => new Sandbox(this.#transport, info, undefined));
      token = page.nextPageToken ?? undefined;
    } while (token !== undefined);
  }

  /** What such a sandbox would be, why, and what would hold each rule. Nothing is made. */
  async explain(options: CreateOptions = {}): Promise<api.Explanation> {
    const ask = { json: { create: await createRequest(options) }, signal: options.signal, repeatable: true };
    return await this.#transport.json<api.Explanation>("POST", "/v1/explain", ask);
  }

  async #make(options: CreateOptions, getOrCreate: boolean): Promise<Sandbox> {
    const info = await createSandbox(this.#transport, { ...(await createRequest(options)), getOrCreate }, options);
    return await new Sandbox(this.#transport, info, options.timeout).answer(options, !getOrCreate);
  }
}
