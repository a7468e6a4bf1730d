// The definition style: say once what a sandbox is, boot it as often as wanted.
//
//   const python = defineSandbox({ rootfs: rootfs.builtIn(), resources: { memory: "1GiB" }, network: network.none() });
//   await using lane = await python.boot({ mounts: { "/workspace": fs.memory({ files: { "main.py": "print(1)" } }) } });
import { posix } from "node:path";
import type { Secrets } from "./callbacks.js";
import { Belljar } from "./client.js";
import type { RunOptions, StartOptions, TerminalSize, Words } from "./command.js";
import type { ConnectionPolicy } from "./decide.js";
import { invalid } from "./errors.js";
import type { Files } from "./files.js";
import type { CreateOptions, Limits } from "./options.js";
import type { PolicyChoice } from "./policy.js";
import type { Process } from "./process.js";
import type { RunResult, Sandbox, SignalOptions } from "./sandbox.js";
import type { Tools } from "./tools.js";

/** What a sandbox starts from. */
export interface Rootfs {
  readonly template: string;
  readonly writable: boolean;
}

export const rootfs = {
  /** What the server has: `host`, or another of its templates. Immutable, but for the usual writable directories. */
  builtIn: (name = "host"): Rootfs => ({ template: name, writable: false }),
  /** A directory of the server's host that holds a root file system. */
  directory: (path: string): Rootfs => ({ template: `rootfs:${path}`, writable: false }),
  /** The same, with a layer over all of it that takes what is written, and ends with the sandbox. */
  writable: (base: Rootfs): Rootfs => ({ ...base, writable: true }),
} as const;

/** What a sandbox may reach. */
export type NetworkDefinition = Pick<
  CreateOptions,
  "network" | "profile" | "allow" | "cidrs" | "ask" | "connections" | "udpPorts"
>;

export const network = {
  /** Nothing. */
  none: (): NetworkDefinition => ({ network: "none" }),
  /** These hosts, as `host`, `*.domain` or `host:port`, and nothing else. */
  allow: (...hosts: string[]): NetworkDefinition => ({ network: "allowlist", allow: hosts }),
  /** A network policy that has a name. */
  profile: (name: string): NetworkDefinition => ({ profile: name }),
  /**
   * What this function accepts, and nothing else: it is asked about each name and each connection. `allow` and `cidrs`
   * name what needs no question, and ranges that are not public and may be accepted; `udpPorts` what is asked about UDP.
   */
  policy: (
    connections: ConnectionPolicy,
    options: Pick<CreateOptions, "allow" | "cidrs" | "udpPorts"> = {},
  ): NetworkDefinition => ({ ...options, network: "allowlist", connections }),
  /** All of the internet. */
  full: (): NetworkDefinition => ({ network: "full" }),
} as const;

/** Something to be seen at a path inside. */
export type Mount =
  | {
      readonly kind: "bind";
      readonly source: string;
      readonly access: "ro" | "rw";
      readonly masks: readonly string[];
    }
  | { readonly kind: "memory"; readonly files: Readonly<Record<string, string | Uint8Array>> };

export const fs = {
  /**
   * A directory of the server's host; read-only unless `access` is `rw`. `masks` are paths below it that are not to be
   * seen: each has to be there, appears empty, and cannot be written, renamed or removed from inside.
   */
  bind: (options: {
    readonly source: string;
    readonly access?: "ro" | "rw" | undefined;
    readonly masks?: readonly string[] | undefined;
  }): Mount => ({
    kind: "bind",
    source: options.source,
    access: options.access ?? "ro",
    masks: options.masks ?? [],
  }),
  /**
   * Files by their paths below the mount, sent when the sandbox boots. They are the sandbox's own from then on. The
   * mount has to lie in a directory that the sandbox may write to: `/workspace`, `/tmp`, `/output`, `/home/user`.
   */
  memory: (options: { readonly files: Readonly<Record<string, string | Uint8Array>> }): Mount => ({
    kind: "memory",
    files: options.files,
  }),
} as const;

export interface Definition {
  /** Absent: the server's own choice. */
  readonly rootfs?: Rootfs | undefined;
  readonly resources?: Limits | undefined;
  /** Absent: none. */
  readonly network?: NetworkDefinition | undefined;
  readonly policy?: PolicyChoice | undefined;
  /** Functions of this process that programs inside may call, where the policy names them. */
  readonly tools?: Tools | undefined;
  /** Secrets by the names that credentials of the policy give them. */
  readonly secrets?: Secrets | undefined;
  readonly env?: Readonly<Record<string, string>> | undefined;
  readonly user?: string | undefined;
  readonly labels?: Readonly<Record<string, string>> | undefined;
  /** Absent: the server of this machine. */
  readonly client?: Belljar | undefined;
}

export interface BootOptions extends SignalOptions {
  /** By their paths inside. */
  readonly mounts?: Readonly<Record<string, Mount>> | undefined;
  readonly cwd?: string | undefined;
  readonly name?: string | undefined;
  readonly env?: Readonly<Record<string, string>> | undefined;
}

/** A kind of sandbox. Nothing exists until it is booted. */
export class SandboxDefinition {
  readonly #definition: Definition;

  /** @internal */
  constructor(definition: Definition) {
    this.#definition = definition;
  }

  /** Makes a sandbox of this kind. */
  async boot(options: BootOptions = {}): Promise<Lane> {
    const { rootfs, resources, network, policy, tools, secrets, env, user, labels } = this.#definition;
    const client = this.#definition.client ?? new Belljar();
    const sandbox = await client.sandboxes.create({
      template: rootfs?.template,
      writable: rootfs?.writable,
      limits: resources,
      ...network,
      policy,
      tools,
      secrets,
      env: { ...env, ...options.env },
      user,
      labels,
      name: options.name,
      cwd: options.cwd,
      ...mounted(options.mounts ?? {}, rootfs?.writable ?? false),
      signal: options.signal,
    });
    return new Lane(sandbox, this.#definition.client === undefined ? client : undefined);
  }
}

export function defineSandbox(definition: Definition): SandboxDefinition {
  return new SandboxDefinition(definition);
}

/** A sandbox that was booted, and ends when it is closed. */
export class Lane implements AsyncDisposable {
  readonly sandbox: Sandbox;
  readonly #client: Belljar | undefined;

  /** @internal */
  constructor(sandbox: Sandbox, client: Belljar | undefined) {
    this.sandbox = sandbox;
    this.#client = client;
  }

  get fs(): Files {
    return this.sandbox.files;
  }

  /** Runs a program with its arguments to its end; without a list of arguments, a line for the shell. */
  async exec(command: Words, args?: readonly string[] | RunOptions, options?: RunOptions): Promise<RunResult> {
    return await this.sandbox.run(...spread(command, args, options));
  }

  /** Starts a command. */
  async spawn(command: Words, args?: readonly string[] | StartOptions, options?: StartOptions): Promise<Process> {
    return await this.sandbox.start(...spread(command, args, options));
  }

  /** Starts a command on a terminal. */
  async pty(
    command: Words = ["/bin/sh"],
    args?: readonly string[] | PtyOptions,
    options?: PtyOptions,
  ): Promise<Process> {
    return await this.sandbox.pty(...spread(command, args, options));
  }

  async close(): Promise<void> {
    await this.sandbox.destroy();
    this.#client?.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

type PtyOptions = StartOptions & { readonly size?: TerminalSize | undefined };

/** `(program, [arguments], options)`, `(line, options)` and `([program, …arguments], options)` are all fine. */
function spread<Options>(
  command: Words,
  args: readonly string[] | Options | undefined,
  options: Options | undefined,
): [Words, Options | undefined] {
  if (!Array.isArray(args)) return [command, args as Options | undefined];
  return [[...(typeof command === "string" ? [command] : command), ...(args as readonly string[])], options];
}

/** Where every sandbox may write. */
const WRITABLE = ["/workspace", "/tmp", "/output", "/home/user"];

function mounted(
  mounts: Readonly<Record<string, Mount>>,
  writable: boolean,
): Pick<CreateOptions, "mounts" | "masks" | "files" | "ensure"> {
  const binds: string[] = [];
  const masks: string[] = [];
  const files: Record<string, string | Uint8Array> = {};
  const ensure: string[] = [];
  for (const [target, mount] of Object.entries(mounts)) {
    if (!target.startsWith("/")) throw invalid(`the mount \`${target}\` is no path inside`, "write it from `/` on");
    if (mount.kind === "bind") {
      binds.push(`${mount.source}:${target}:${mount.access}`);
      for (const path of mount.masks) masks.push(below(target, path));
      continue;
    }
    const whole = posix.resolve(target);
    if (!writable && !WRITABLE.some((path) => whole === path || whole.startsWith(`${path}/`))) {
      const remedy = `choose a path below ${WRITABLE.join(", ")}, or a root that can be written to (\`rootfs.writable\`)`;
      throw invalid(`nothing can be put at the mount \`${target}\``, remedy);
    }
    for (const [path, content] of Object.entries(mount.files)) files[below(target, path)] = content;
    // Without a file nothing else would make the directory.
    if (Object.keys(mount.files).length === 0) ensure.push(`mkdir -p -- '${whole.replaceAll("'", `'\\''`)}'`);
  }
  return { mounts: binds, masks, files, ...(ensure.length > 0 ? { ensure } : {}) };
}

function below(target: string, path: string): string {
  const whole = posix.join(target, path);
  if (!whole.startsWith(posix.join(target, "/")) || whole === posix.join(target, "/")) {
    throw invalid(`\`${path}\` does not lie below the mount \`${target}\``, "leave out `..`");
  }
  return whole;
}
