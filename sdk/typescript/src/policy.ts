// Which policy a sandbox runs under, as a caller says it and as the wire has it.
import { readFile } from "node:fs/promises";
import { invalid } from "./errors.js";
import type * as api from "./generated/api.js";
import type { Transport } from "./transport.js";

/**
 * A policy: its text in YAML or JSON; the name under which the server keeps it (`name` or `name@version`); a document as
 * an object; or a file of this machine. `{ record: true }` denies nothing and puts everything on record.
 */
export type PolicyChoice =
  | string
  | { readonly name: string }
  | { readonly document: object | string }
  | { readonly file: string }
  | { readonly record: true };

const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]*(@\d+)?$/;

export async function policySpec(choice: PolicyChoice | undefined): Promise<api.PolicySpec | undefined> {
  if (choice === undefined) return undefined;
  if (typeof choice === "string") return NAME.test(choice) ? { name: choice } : { document: choice };
  if ("name" in choice) return { name: choice.name };
  if ("record" in choice) return { record: true };
  if ("document" in choice) return { document: textOf(choice.document) };
  return { documents: [{ origin: choice.file, text: await textFrom(choice.file) }] };
}

function textOf(document: object | string): string {
  // JSON is YAML.
  return typeof document === "string" ? document : JSON.stringify(document);
}

async function textFrom(file: string): Promise<string> {
  try {
    return await readFile(file, "utf8");
  } catch (error) {
    throw invalid(`the policy \`${file}\` cannot be read: ${(error as Error).message}`, "give the path of a document");
  }
}

interface Signalled {
  readonly signal?: AbortSignal | undefined;
}

interface Owned extends Signalled {
  /** For administrators: whose it is. Others always have their own. */
  readonly tenant?: string | undefined;
}

/** The policies that a server keeps by name. */
export class Policies {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Keeps a policy. A change is a new version; what says the same as the newest is not kept twice. */
  async put(
    name: string,
    policy: Exclude<PolicyChoice, { readonly name: string } | { readonly record: true }>,
    options: Owned = {},
  ): Promise<api.Policy> {
    const spec = typeof policy === "string" ? { document: policy } : await policySpec(policy);
    const documents = spec?.documents ?? [{ origin: name, text: spec?.document ?? "" }];
    return await this.#transport.json("PUT", this.#path(name), {
      json: { documents, tenant: options.tenant },
      signal: options.signal,
      repeatable: true,
    });
  }

  /** One version, with its documents: `name` or `name@version`. */
  async get(name: string, options: Owned = {}): Promise<api.Policy> {
    const ask = { query: { tenant: options.tenant }, signal: options.signal, repeatable: true };
    return await this.#transport.json("GET", this.#path(name), ask);
  }

  /** The newest version of each, or every version of one. */
  async list(options: Owned & { name?: string | undefined } = {}): Promise<api.Policy[]> {
    const ask = { query: { name: options.name, tenant: options.tenant }, signal: options.signal, repeatable: true };
    return (await this.#transport.json<api.ListPoliciesResponse>("GET", "/v1/policies", ask)).policies;
  }

  /** Removes a version, or all. Sandboxes that run under one go on. */
  async remove(name: string, options: Owned = {}): Promise<void> {
    const ask = { query: { tenant: options.tenant }, signal: options.signal };
    await this.#transport.json("DELETE", this.#path(name), ask);
  }

  /** The smallest document that allows what a sandbox did, for review: under its policy, or while it was recorded. */
  async learn(sandbox: string, options: Signalled = {}): Promise<api.LearnPolicyResponse> {
    const path = `/v1/sandboxes/${encodeURIComponent(sandbox)}/policy/learned`;
    return await this.#transport.json("GET", path, { signal: options.signal, repeatable: true });
  }

  #path(name: string): string {
    return `/v1/policies/${encodeURIComponent(name)}`;
  }
}
