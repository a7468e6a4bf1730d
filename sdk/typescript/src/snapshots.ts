// The kept files of sandboxes, and new sandboxes from them.
import type * as api from "./generated/api.js";
import { type CreateOptions, createRequest, pairs } from "./options.js";
import { Sandbox, type SignalOptions, type SnapshotOptions, createSnapshot } from "./sandbox.js";
import type { Transport } from "./transport.js";

export interface ListSnapshotsOptions extends SignalOptions {
  /** All must match. */
  readonly labels?: Readonly<Record<string, string>> | undefined;
  /** Only of this sandbox, by name or id. */
  readonly sandbox?: string | undefined;
  /** For administrators: only this tenant's. */
  readonly tenant?: string | undefined;
}

/** The snapshots of a server. `sandbox.snapshot()` makes them. */
export class Snapshots {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Keeps the files of a sandbox, given by name or id. Processes and their memory are not kept. */
  async create(sandbox: string, options: SnapshotOptions = {}): Promise<api.Snapshot> {
    return await createSnapshot(this.#transport, sandbox, options);
  }

  /** One snapshot, by name or id. */
  async get(nameOrId: string, options: SignalOptions = {}): Promise<api.Snapshot> {
    return await this.#transport.json("GET", path(nameOrId), { signal: options.signal, repeatable: true });
  }

  /** All that match, oldest first. */
  async list(options: ListSnapshotsOptions = {}): Promise<api.Snapshot[]> {
    const found: api.Snapshot[] = [];
    let token: string | undefined;
    do {
      const page: api.ListSnapshotsResponse = await this.#transport.json("GET", "/v1/snapshots", {
        query: {
          label: pairs(options.labels),
          sandbox: options.sandbox,
          tenant: options.tenant,
          page_size: 1000,
          page_token: token,
        },
        signal: options.signal,
        repeatable: true,
      });
      found.push(...page.snapshots);
      token = page.nextPageToken ?? undefined;
    } while (token !== undefined);
    return found;
  }

  /**
   * A new sandbox with the files of a snapshot, which are verified first. Template, limits, network, user, isolation and
   * policy are as they were in the snapshot's sandbox where the options say nothing. As often as wanted: each is a fork.
   */
  async restore(nameOrId: string, options: Omit<CreateOptions, "idempotencyKey"> = {}): Promise<Sandbox> {
    const json = { create: await createRequest(options) };
    const ask = { json, signal: options.signal };
    const info = await this.#transport.json<api.Sandbox>("POST", `${path(nameOrId)}/restore`, ask);
    return await new Sandbox(this.#transport, info, options.timeout).answer(options, true);
  }

  /** Removes a snapshot. Sandboxes made from it stay. */
  async remove(nameOrId: string, options: SignalOptions = {}): Promise<void> {
    await this.#transport.json("DELETE", path(nameOrId), { signal: options.signal });
  }
}

function path(snapshot: string): string {
  return `/v1/snapshots/${encodeURIComponent(snapshot)}`;
}
