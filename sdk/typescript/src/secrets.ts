// Secrets that the server keeps for requests of sandboxes. Values go in and never come out.
import type * as api from "./generated/api.js";
import type { SignalOptions } from "./sandbox.js";
import type { Transport } from "./transport.js";

interface Owned extends SignalOptions {
  /** For administrators; others have one. */
  readonly tenant?: string | undefined;
}

/** The secrets that a server keeps by name, for credentials of a policy with `source: {store: NAME}`. */
export class SecretStore {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Keeps a value under a name, in the place of an earlier one: requests from now on use it. */
  async set(name: string, value: string, options: Owned = {}): Promise<api.Secret> {
    const ask = { json: { value, tenant: options.tenant }, signal: options.signal, repeatable: true };
    return await this.#transport.json("PUT", path(name), ask);
  }

  /** Names and times. */
  async list(options: SignalOptions = {}): Promise<api.Secret[]> {
    const ask = { signal: options.signal, repeatable: true };
    return (await this.#transport.json<api.ListSecretsResponse>("GET", "/v1/secrets", ask)).secrets;
  }

  async remove(name: string, options: Owned = {}): Promise<void> {
    await this.#transport.json("DELETE", path(name), { query: { tenant: options.tenant }, signal: options.signal });
  }
}

function path(name: string): string {
  return `/v1/secrets/${encodeURIComponent(name)}`;
}
