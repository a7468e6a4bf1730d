// For administrators: who may use a server, how much of it, and who is told what happens.
import type * as api from "./generated/api.js";
import type { SignalOptions } from "./sandbox.js";
import { jsonLines, serverEvents } from "./sse.js";
import type { Transport } from "./transport.js";

export interface KeyOptions extends SignalOptions {
  /** Absent: `default`. */
  readonly tenant?: string | undefined;
  /** Absent: `tenant`. */
  readonly role?: "admin" | "tenant" | "sandbox" | undefined;
  /** For the role `sandbox`: the one it opens. */
  readonly sandbox?: string | undefined;
  /** Absent: all that the role may. */
  readonly scopes?: readonly ("read" | "write" | "exec" | "files" | "keys")[] | undefined;
  /** Seconds from now. Absent: never, or with the key that makes it. */
  readonly expires?: number | undefined;
}

/** The keys that open a server. */
export class Keys {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Makes a key. Its `secret` is in this answer and nowhere else. */
  async create(name: string, options: KeyOptions = {}): Promise<api.Key & { readonly secret: string }> {
    const { tenant, role, sandbox, scopes, expires, signal } = options;
    const json = { name, tenant, role, sandbox, scopes, expiresInSecs: expires };
    const { key, secret } = await this.#transport.json<api.CreateKeyResponse>("POST", "/v1/keys", { json, signal });
    return { ...(key as api.Key), secret };
  }

  /** All, or those of one tenant, without their secrets. */
  async list(options: SignalOptions & { tenant?: string | undefined } = {}): Promise<api.Key[]> {
    const ask = { query: { tenant: options.tenant }, signal: options.signal, repeatable: true };
    return (await this.#transport.json<api.ListKeysResponse>("GET", "/v1/keys", ask)).keys;
  }

  /** Nobody gets in with it any more. */
  async revoke(keyId: string, options: SignalOptions = {}): Promise<api.Key> {
    const ask = { signal: options.signal, repeatable: true };
    return await this.#transport.json("DELETE", `/v1/keys/${encodeURIComponent(keyId)}`, ask);
  }
}

/** The owners of sandboxes, and what each may use. */
export class Tenants {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Makes one; what `quotas` leaves out is not limited. */
  async create(
    tenant: string,
    options: SignalOptions & { quotas?: api.QuotasInput | undefined } = {},
  ): Promise<api.Tenant> {
    const json = { tenant, quotas: options.quotas };
    return await this.#transport.json("POST", "/v1/tenants", { json, signal: options.signal });
  }

  /** One, with its quotas and what is in use. */
  async get(tenant: string, options: SignalOptions = {}): Promise<api.Tenant> {
    return await this.#transport.json("GET", path(tenant), { signal: options.signal, repeatable: true });
  }

  async list(options: SignalOptions = {}): Promise<api.Tenant[]> {
    const ask = { signal: options.signal, repeatable: true };
    return (await this.#transport.json<api.ListTenantsResponse>("GET", "/v1/tenants", ask)).tenants;
  }

  /** In place of the quotas before: what is left out is not limited. */
  async setQuotas(tenant: string, quotas: api.QuotasInput, options: SignalOptions = {}): Promise<api.Tenant> {
    const ask = { json: { quotas }, signal: options.signal, repeatable: true };
    return await this.#transport.json("PUT", `${path(tenant)}/quotas`, ask);
  }

  /** Removes one that owns no sandboxes. */
  async remove(tenant: string, options: SignalOptions = {}): Promise<void> {
    await this.#transport.json("DELETE", path(tenant), { signal: options.signal });
  }
}

/** Addresses that are told what happens. */
export class Webhooks {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** `secret` signs what is sent: HMAC-SHA-256 in the header `belljar-signature`. Without `kinds`: everything. */
  async create(
    url: string,
    options: SignalOptions & { readonly secret: string; readonly kinds?: readonly api.EventKind[] | undefined },
  ): Promise<api.Webhook> {
    const json = { url, secret: options.secret, kinds: options.kinds };
    return await this.#transport.json("POST", "/v1/webhooks", { json, signal: options.signal });
  }

  /** With how far each has got, and how it failed. */
  async list(options: SignalOptions = {}): Promise<api.Webhook[]> {
    const ask = { signal: options.signal, repeatable: true };
    return (await this.#transport.json<api.ListWebhooksResponse>("GET", "/v1/webhooks", ask)).webhooks;
  }

  async remove(webhookId: string, options: SignalOptions = {}): Promise<void> {
    const path = `/v1/webhooks/${encodeURIComponent(webhookId)}`;
    await this.#transport.json("DELETE", path, { signal: options.signal });
  }
}

/** Which records of the audit log. All must match. */
export interface AuditOptions extends SignalOptions {
  readonly sandbox?: string | undefined;
  readonly actor?: string | undefined;
  readonly action?: string | undefined;
  /** `ok`, or the code of a failure. */
  readonly outcome?: string | undefined;
  /** Decisions of policies with this answer. */
  readonly verdict?: "allow" | "deny" | "audit" | "block" | undefined;
  /** Decisions of this rule. */
  readonly rule?: string | undefined;
  /** Decisions of the policy whose digest begins so. */
  readonly policy?: string | undefined;
  readonly since?: Date | undefined;
  readonly until?: Date | undefined;
  /** Only the last so many. */
  readonly last?: number | undefined;
  /** Go on with new ones, without end. */
  readonly follow?: boolean | undefined;
}

export async function* readAudit(
  transport: Transport,
  options: AuditOptions,
): AsyncGenerator<api.AuditRecord, void, undefined> {
  const { signal, follow, since, until, ...rest } = options;
  const answer = await transport.stream("GET", "/v1/audit", {
    query: { ...rest, since: since?.toISOString(), until: until?.toISOString() },
    headers: { accept: follow ? "text/event-stream" : "application/x-ndjson" },
    signal,
    repeatable: true,
  });
  if (!follow) return yield* jsonLines<api.AuditRecord>(answer, signal);
  for await (const { data } of serverEvents<api.AuditRecord>(answer, signal)) yield data;
}

function path(tenant: string): string {
  return `/v1/tenants/${encodeURIComponent(tenant)}`;
}
