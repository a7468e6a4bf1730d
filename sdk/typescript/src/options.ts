// What a sandbox is to be like, as a caller says it and as the wire has it.
import type { Secrets } from "./callbacks.js";
import type { ConnectionPolicy } from "./decide.js";
import { invalid } from "./errors.js";
import type * as api from "./generated/api.js";
import { type PolicyChoice, policySpec } from "./policy.js";
import type { Tools } from "./tools.js";
import { base64 } from "./wire.js";

/** Bytes, or text with a unit: `"512MiB"`, `"2g"`. */
export type Size = number | string;

/** What a sandbox may use. Absent: the server's defaults. */
export interface Limits {
  readonly memory?: Size | undefined;
  /** CPUs; fractions are fine. */
  readonly cpus?: number | undefined;
  readonly pids?: number | undefined;
  readonly disk?: Size | undefined;
}

export type NetworkMode = "none" | "allowlist" | "full";

/** A sandbox to be created. Times are in seconds. */
export interface CreateOptions {
  readonly name?: string | undefined;
  /** `auto`, `host`, `rootfs:DIR`, `image:NAME` of an engine, or a family: `python`, `node`, `go`, `rust`, `base`. */
  readonly template?: string | undefined;
  readonly backend?: string | undefined;
  /** What runs in the backend, where it has several: for `oci` `runsc` or `runc`. Absent: the best that works. */
  readonly runtime?: string | undefined;
  /** The weakest isolation class that is acceptable: `namespace`, `kernel` or `vm`. */
  readonly isolation?: string | undefined;
  /** Needed for the backend `local`, which isolates nothing. */
  readonly allowNoIsolation?: boolean | undefined;
  /** Absent: `none`, or `allowlist` where `allow` is given. */
  readonly network?: NetworkMode | undefined;
  /** A network policy with a name: `locked`, `web`, `packages` or `full`. */
  readonly profile?: string | undefined;
  /** Hosts, as `host`, `*.domain` or `host:port`. */
  readonly allow?: readonly string[] | undefined;
  /** Ranges of addresses that are not public and may be reached all the same. */
  readonly cidrs?: readonly string[] | undefined;
  /** Seconds that what nothing allows waits for somebody to allow it. Absent: it is denied at once. */
  readonly ask?: number | undefined;
  /**
   * Decides in this process about names and connections that no rule names; what it does not accept is denied. With
   * `ask`, or beside a policy whose rules ask, it answers for what waits.
   */
  readonly connections?: ConnectionPolicy | undefined;
  /** Ports of UDP, besides DNS, that `connections` is asked about. */
  readonly udpPorts?: readonly number[] | undefined;
  /** What the sandbox runs under. The other options may ask for less than it allows, never for more. */
  readonly policy?: PolicyChoice | undefined;
  readonly limits?: Limits | undefined;
  /** Accept weaker mechanisms for limits that were asked for. */
  readonly bestEffort?: boolean | undefined;
  /** A directory of the server's host as `/workspace`; its changes stay in a layer unless `mode` says otherwise. */
  readonly workspace?:
    string | { readonly path: string; readonly mode?: "overlay" | "bind" | "bind-ro" | undefined } | undefined;
  /** As `SOURCE:TARGET[:ro|rw]`, paths of the server's host. */
  readonly mounts?: readonly string[] | undefined;
  /** Paths inside, below mounts or the workspace, that appear empty: what the sandbox must not see of them. */
  readonly masks?: readonly string[] | undefined;
  readonly env?: Readonly<Record<string, string>> | undefined;
  readonly user?: string | undefined;
  readonly cwd?: string | undefined;
  /** The whole root is a layer that can be written to. */
  readonly writable?: boolean | undefined;
  /** Only these programs are reachable. */
  readonly programs?: readonly string[] | undefined;
  /** For commands that name no timeout of their own. Absent: 60. 0: none. */
  readonly timeout?: number | undefined;
  /** Ends after so long without use. Absent: 1800. 0: never. */
  readonly idleTimeout?: number | undefined;
  /** Ends after so long in any case. Absent: never. */
  readonly lease?: number | undefined;
  /** Shell lines that run once in the sandbox's life. */
  readonly ensure?: readonly string[] | undefined;
  readonly labels?: Readonly<Record<string, string>> | undefined;
  readonly metadata?: Readonly<Record<string, string>> | undefined;
  /** Written before the first command, by path. */
  readonly files?: Readonly<Record<string, string | Uint8Array>> | undefined;
  /** For administrators: the owner. */
  readonly tenant?: string | undefined;
  /** The tenant's own storage, which outlives sandboxes. */
  readonly volume?: string | { readonly name: string; readonly target?: string | undefined } | undefined;
  /** Functions of this process that programs inside may call, where the policy's `tool_allowlist` names them. */
  readonly tools?: Tools | undefined;
  /** Secrets by the names that credentials of the policy give them (`source: callback`). */
  readonly secrets?: Secrets | undefined;
  /** The same key with the same options gives the same sandbox, for a day. */
  readonly idempotencyKey?: string | undefined;
  readonly signal?: AbortSignal | undefined;
}

export async function createRequest(options: CreateOptions): Promise<api.CreateSandboxRequest> {
  const { workspace, volume } = options;
  return {
    name: options.name,
    template: options.template,
    backend: options.backend,
    runtime: options.runtime,
    isolation: options.isolation,
    allowNoIsolation: options.allowNoIsolation,
    policy: await policySpec(options.policy),
    network: network(options),
    limits: options.limits === undefined ? undefined : limits(options.limits),
    bestEffort: options.bestEffort,
    workspace: typeof workspace === "string" ? { path: workspace } : workspace,
    mounts: list(options.mounts),
    masks: list(options.masks),
    environment: options.env,
    user: options.user,
    workingDirectory: options.cwd,
    writable: options.writable,
    programs: list(options.programs),
    timeoutSecs: options.timeout,
    idleTimeoutSecs: options.idleTimeout,
    leaseSecs: options.lease,
    ensure: list(options.ensure),
    labels: options.labels,
    metadata: options.metadata,
    files:
      options.files === undefined
        ? undefined
        : Object.entries(options.files).map(([path, content]) => ({ path, content: base64(content) })),
    tenant: options.tenant,
    volume: typeof volume === "string" ? { name: volume } : volume,
  };
}

function network(options: CreateOptions): api.Network | undefined {
  const { network, profile, allow, cidrs, ask, connections, policy, udpPorts } = options;
  const callbackConnections = connections !== undefined && ask === undefined && policy === undefined;
  if (!callbackConnections && [network, profile, allow, cidrs, ask].every((given) => given === undefined))
    return undefined;
  const mode = network ?? (profile === undefined && (allow ?? cidrs ?? ask) !== undefined ? "allowlist" : undefined);
  const callbackUdpPorts = udpPorts === undefined ? undefined : [...udpPorts];
  return { mode, profile, allow: list(allow), cidrs: list(cidrs), askSecs: ask, callbackConnections, callbackUdpPorts };
}

export function limits(limits: Limits): api.LimitsInput {
  return {
    memoryBytes: bytes("memory", limits.memory),
    milliCpus: limits.cpus === undefined ? undefined : Math.round(limits.cpus * 1000),
    pids: limits.pids,
    diskBytes: bytes("disk", limits.disk),
  };
}

function list(values: readonly string[] | undefined): string[] | undefined {
  return values === undefined ? undefined : [...values];
}

const UNITS: Readonly<Record<string, number>> = { "": 1, k: 1024, m: 1024 ** 2, g: 1024 ** 3, t: 1024 ** 4 };

function bytes(name: string, size: Size | undefined): number | undefined {
  if (size === undefined || typeof size === "number") return size;
  const [, digits, unit] = /^(\d+(?:\.\d+)?) ?([kmgt]?)(?:i?b)?$/i.exec(size.trim()) ?? [];
  const factor = unit === undefined ? undefined : UNITS[unit.toLowerCase()];
  if (digits === undefined || factor === undefined) {
    throw invalid(`the limit \`${name}\` is \`${size}\``, "write bytes as a number, or with a unit, such as `512MiB`");
  }
  return Math.round(Number(digits) * factor);
}

/** As queries have them. */
export function pairs(map: Readonly<Record<string, string>> | undefined): string[] | undefined {
  return map === undefined ? undefined : Object.entries(map).map(([key, value]) => `${key}=${value}`);
}
