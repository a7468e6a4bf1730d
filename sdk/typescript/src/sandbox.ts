// One sealed computer. Made by `client.sandboxes`, or by itself: `new Sandbox(url)` and then `create`.
import { randomUUID } from "node:crypto";
import { Callbacks } from "./callbacks.js";
import { type ClientOptions, transportOf } from "./connect.js";
import { type RunOptions, type StartOptions, type TerminalSize, type Words, codeOf, commandOf } from "./command.js";
import type { ConnectionPolicy } from "./decide.js";
import {
  AbortedError,
  SandboxNotFoundError,
  TimedOutError,
  abortable,
  errorOf,
  invalid,
  refuseAborted,
} from "./errors.js";
import { Files } from "./files.js";
import { Forward, type ForwardOptions } from "./forward.js";
import type * as api from "./generated/api.js";
import { type CreateOptions, createRequest } from "./options.js";
import { pipCommand, pipRefusal } from "./pip.js";
import { type Output, Process } from "./process.js";
import { SandboxNetwork } from "./reach.js";
import { serverEvents } from "./sse.js";
import type { Tools } from "./tools.js";
import { Transport } from "./transport.js";

/** Who aborts wants it to end, but a program may want to put things in order. */
const ABORT_GRACE_SECS = 1;
/** How long an aborted command is looked after. */
const ABORT_TIMEOUT_MS = 10_000;

/** How a command ended, with what it wrote. */
export type RunResult = api.ExecResponse;

export interface SignalOptions {
  readonly signal?: AbortSignal | undefined;
}

export interface SnapshotOptions extends SignalOptions {
  /** One that no other snapshot has. */
  readonly name?: string | undefined;
  readonly labels?: Readonly<Record<string, string>> | undefined;
  /** Directories inside. Absent: `/workspace`, `/home/user` and `/output`. */
  readonly paths?: readonly string[] | undefined;
}

export class Sandbox implements AsyncDisposable {
  readonly #transport: Transport;
  /** Whether the connections are this sandbox's own. */
  readonly #owns: boolean;
  #info: api.Sandbox | undefined;
  #timeout: number | undefined;
  #files: Files | undefined;
  #callbacks: Callbacks | undefined;
  #gone = false;

  /**
   * A sandbox that is not there yet: `create` makes it.
   * @param server `http://HOST:PORT`, `https://HOST:PORT`, `unix:PATH`, or options. Absent: as for `Belljar`.
   */
  constructor(server?: string | ClientOptions);
  /** @internal */
  constructor(server: Transport, info: api.Sandbox, timeout: number | undefined);
  constructor(server?: string | ClientOptions | Transport, info?: api.Sandbox, timeout?: number) {
    this.#owns = !(server instanceof Transport);
    this.#transport = server instanceof Transport ? server : transportOf(server);
    this.#info = info;
    this.#timeout = timeout;
  }

  /** Makes the sandbox that this object stands for. */
  async create(options: CreateOptions = {}): Promise<this> {
    if (this.#info !== undefined) throw invalid(`sandbox \`${this.id}\` exists already`, "make another `Sandbox`");
    this.#info = await createSandbox(this.#transport, await createRequest(options), options);
    this.#timeout = options.timeout;
    return await this.answer(options, true);
  }

  get id(): string {
    return this.info.sandboxId;
  }

  get name(): string | undefined {
    return this.info.name ?? undefined;
  }

  /** The record as it was seen last. */
  get info(): api.Sandbox {
    if (this.#info === undefined) {
      throw errorOf({
        code: "sandbox-not-ready",
        message: "this sandbox was not made yet",
        remedy: "call `create` first",
      });
    }
    return this.#info;
  }

  /** Its files. Everything is done inside, with the workload's own identity. */
  get files(): Files {
    return (this.#files ??= new Files(this.#transport, this.id));
  }

  /** What it reaches. */
  get network(): SandboxNetwork {
    return new SandboxNetwork(this.#transport, this.id);
  }

  /** Looks again. */
  async refresh(options: SignalOptions = {}): Promise<api.Sandbox> {
    return await this.#change("GET", "", undefined, options);
  }

  /**
   * Runs a command to its end: text is a line for the shell, a list is a program with its arguments. A command that
   * fails, or runs out of time, is a result and no error. Aborting ends the command too.
   */
  async run(words: Words, options: RunOptions = {}): Promise<RunResult> {
    return await this.#exec(commandOf(words, this.#with(options)), options);
  }

  /** Runs a program text. */
  async runCode(
    language: "python" | "javascript" | "bash",
    code: string,
    options: RunOptions = {},
  ): Promise<RunResult> {
    return await this.#exec(codeOf(code, language, this.#with(options)), options);
  }

  /** Runs a Python program. */
  async runPython(code: string, options: RunOptions = {}): Promise<RunResult> {
    return await this.runCode("python", code, options);
  }

  /** Starts a command and returns at once. */
  async start(words: Words, options: StartOptions = {}): Promise<Process> {
    const info = await this.#transport.json<api.Process>("POST", this.#path("/processes"), {
      json: { command: commandOf(words, this.#with(options)) },
      headers: { "idempotency-key": randomUUID() },
      signal: options.signal,
      repeatable: true,
    });
    return new Process(this.#transport, info);
  }

  /** Starts a command on a terminal; without a time limit unless one is given. */
  async pty(
    words: Words = ["/bin/sh"],
    options: StartOptions & { size?: TerminalSize | undefined } = {},
  ): Promise<Process> {
    const { size, ...rest } = options;
    return await this.start(words, { timeout: 0, ...rest, pty: size ?? true });
  }

  /** Its processes, newest first. */
  async processes(
    options: SignalOptions & { status?: readonly api.ProcessStatus[] | undefined } = {},
  ): Promise<Process[]> {
    return await listProcesses(this.#transport, { ...options, sandbox: this.id });
  }

  /**
   * Shows a port of the sandbox over HTTP: at `url`, to who has the `token`, or with `public` to everybody. The token is
   * valid for `expires` seconds (absent: an hour).
   */
  async expose(
    port: number,
    options: SignalOptions & { public?: boolean | undefined; expires?: number | undefined } = {},
  ): Promise<api.ExposedPort> {
    const json = { port, public: options.public, expiresInSecs: options.expires };
    const ask = { json, signal: options.signal, repeatable: true };
    return await this.#transport.json<api.ExposedPort>("POST", this.#path("/ports"), ask);
  }

  /** Its ports that are shown. */
  async ports(options: SignalOptions = {}): Promise<api.ExposedPort[]> {
    const ask = { signal: options.signal, repeatable: true };
    return (await this.#transport.json<api.ListPortsResponse>("GET", this.#path("/ports"), ask)).ports;
  }

  /** Shows a port no longer. */
  async hide(port: number, options: SignalOptions = {}): Promise<void> {
    await this.#transport.json("DELETE", this.#path(`/ports/${port}`), { signal: options.signal, repeatable: true });
  }

  /** Listens on loopback here and joins each connection to a port inside, shown or not; for any protocol. */
  async forward(port: number, options: ForwardOptions = {}): Promise<Forward> {
    return await Forward.open(this.#transport, this.id, port, options);
  }

  /**
   * Keeps its files; `client.snapshots.restore` makes new sandboxes with them. Processes and their memory are not kept.
   */
  async snapshot(options: SnapshotOptions = {}): Promise<api.Snapshot> {
    return await createSnapshot(this.#transport, this.id, options);
  }

  /** What it is, why, and what holds each rule. */
  async explain(options: SignalOptions = {}): Promise<api.Explanation> {
    const ask = { json: { sandbox: this.id }, signal: options.signal, repeatable: true };
    return await this.#transport.json("POST", "/v1/explain", ask);
  }

  /**
   * A signed token that opens this sandbox and nothing else, valid for `expires` seconds (absent: an hour): for `api` as
   * an API key, for `egress` at the explicit proxy, for `preview` at a port that is shown.
   */
  async issueToken(
    options: SignalOptions & {
      audience?: "api" | "egress" | "preview" | undefined;
      expires?: number | undefined;
    } = {},
  ): Promise<api.IssueTokenResponse> {
    const json = { sandbox: this.id, audience: options.audience, expiresInSecs: options.expires };
    return await this.#transport.json("POST", "/v1/tokens", { json, signal: options.signal });
  }

  /** Starts the clocks of its lease anew; seconds. */
  async extend(
    options: SignalOptions & { idleTimeout?: number | undefined; lease?: number | undefined } = {},
  ): Promise<api.Sandbox> {
    return await this.#change(
      "POST",
      "/extend",
      { idleTimeoutSecs: options.idleTimeout, leaseSecs: options.lease },
      options,
    );
  }

  /** Freezes every process. */
  async pause(options: SignalOptions = {}): Promise<api.Sandbox> {
    return await this.#change("POST", "/pause", undefined, options);
  }

  /** Lets a paused sandbox go on. */
  async resume(options: SignalOptions = {}): Promise<api.Sandbox> {
    return await this.#change("POST", "/resume", undefined, options);
  }

  /** What changed in the layer over its workspace. */
  async diff(options: SignalOptions = {}): Promise<api.LayerChange[]> {
    return await this.#layer("GET", "", options);
  }

  /** Writes the layer's changes to the workspace on the host. */
  async apply(options: SignalOptions = {}): Promise<api.LayerChange[]> {
    return await this.#layer("POST", "/apply", options);
  }

  /** Throws the layer's changes away. */
  async discard(options: SignalOptions = {}): Promise<api.LayerChange[]> {
    return await this.#layer("POST", "/discard", options);
  }

  /**
   * Lets programs inside call functions of this process, by the names that the policy's `tool_allowlist` has. Done when
   * they can be called. They are answered until the sandbox is destroyed or the client is closed, also through losses of
   * the connection; a call that nobody can answer fails.
   */
  async serveTools(tools: Tools, options: SignalOptions = {}): Promise<void> {
    await this.#offer({ tools }, options.signal);
  }

  /**
   * Lets this function decide about names and connections that no rule names, in place of one that did. The sandbox must
   * have been created so that somebody is asked: with `connections`, with `ask`, or with a policy whose rules ask.
   */
  async serveConnections(policy: ConnectionPolicy, options: SignalOptions = {}): Promise<void> {
    await this.#offer({ policy }, options.signal);
  }

  async #offer(more: Parameters<Callbacks["offer"]>[0], signal: AbortSignal | undefined): Promise<void> {
    refuseAborted(signal);
    this.#callbacks ??= new Callbacks(this.#transport, this.id);
    await abortable(this.#callbacks.offer(more), signal);
  }

  /**
   * Begins to answer what it was created to ask. Where that fails, a sandbox that is `ours` alone is gone again.
   * @internal
   */
  async answer(options: CreateOptions, ours: boolean): Promise<this> {
    try {
      const { tools, connections: policy, secrets, signal } = options;
      if ([tools, policy, secrets].some((given) => given !== undefined))
        await this.#offer({ tools, policy, secrets }, signal);
      return this;
    } catch (error) {
      if (ours) await this.destroy().catch(() => undefined);
      throw error;
    }
  }

  /** Ends it and removes all it had. One that is gone already is fine. */
  async destroy(options: SignalOptions = {}): Promise<void> {
    await this.#callbacks?.close();
    if (this.#info !== undefined && !this.#gone) {
      try {
        await this.#transport.json("DELETE", this.#path(""), { signal: options.signal, repeatable: true });
      } catch (error) {
        if (!(error instanceof SandboxNotFoundError)) throw error;
      }
      this.#gone = true;
    }
    if (this.#owns) this.#transport.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.destroy();
  }

  /** The same as `run`. */
  async exec(words: Words, options: RunOptions = {}): Promise<RunResult> {
    return await this.run(words, options);
  }

  /** Runs a command and gives its output as it comes, then its record. Aborting ends the command too. */
  async *execStream(words: Words, options: StartOptions = {}): AsyncGenerator<Output, api.Process, undefined> {
    const process = await this.start(words, options);
    try {
      yield* process.logs({ follow: true, signal: options.signal });
      return process.info;
    } catch (error) {
      if (options.signal?.aborted) await process.cancel({ grace: ABORT_GRACE_SECS }).catch(() => undefined);
      throw error;
    }
  }

  async writeFile(path: string, content: string | Uint8Array, options: SignalOptions = {}): Promise<void> {
    await this.files.write(path, content, { makeParents: true, ...options });
  }

  /** A file as text; `files.read` gives bytes. */
  async readFile(path: string, options: SignalOptions = {}): Promise<string> {
    return await this.files.readText(path, options);
  }

  /**
   * Installs Python packages for the sandbox's user. Names only: no options, no paths, no URLs. Needs a network that
   * allows the package index.
   */
  async pipInstall(packages: string | readonly string[], options: RunOptions = {}): Promise<RunResult> {
    const command = pipCommand(typeof packages === "string" ? [packages] : packages);
    const refusal = pipRefusal(this.info, await this.network.show({ signal: options.signal }));
    if (refusal !== undefined) throw refusal;
    return await this.run(command, { timeout: 600, ...options });
  }

  async #exec(command: api.Command, options: RunOptions): Promise<RunResult> {
    const ask = {
      json: { command, artifacts: options.artifacts },
      headers: { "idempotency-key": randomUUID() },
      repeatable: true,
    };
    try {
      return await this.#transport.json<RunResult>("POST", this.#path("/exec"), { ...ask, signal: options.signal });
    } catch (error) {
      if (error instanceof AbortedError || (options.signal?.aborted && error instanceof TimedOutError))
        await this.#end(ask);
      throw error;
    }
  }

  /** Ends the command that a request began: the same key finds it. */
  async #end(ask: { json: unknown; headers: Record<string, string> }): Promise<void> {
    const signal = AbortSignal.timeout(ABORT_TIMEOUT_MS);
    try {
      const headers = { ...ask.headers, accept: "text/event-stream" };
      const answer = await this.#transport.open("POST", this.#path("/exec"), { json: ask.json, headers, signal });
      for await (const { data } of serverEvents<api.ProcessOutput>(answer, signal)) {
        if (data.started) await new Process(this.#transport, data.started).cancel({ grace: ABORT_GRACE_SECS, signal });
        return;
      }
    } catch {
      // The caller is told why it was aborted; the command's own timeout ends what could not be ended here.
    }
  }

  #with<T extends StartOptions>(options: T): T {
    return this.#timeout === undefined ? options : { timeout: this.#timeout, ...options };
  }

  async #change(method: string, suffix: string, json: unknown, options: SignalOptions): Promise<api.Sandbox> {
    return (this.#info = await this.#transport.json<api.Sandbox>(method, this.#path(suffix), {
      json,
      signal: options.signal,
      repeatable: true,
    }));
  }

  async #layer(method: string, suffix: string, options: SignalOptions): Promise<api.LayerChange[]> {
    // Applying and discarding twice is the same as once: the second time there is nothing left.
    const answer = await this.#transport.json<api.DiffLayerResponse>(method, this.#path(`/layer${suffix}`), {
      signal: options.signal,
    });
    return answer.changes;
  }

  #path(suffix: string): string {
    return `/v1/sandboxes/${encodeURIComponent(this.id)}${suffix}`;
  }
}

/** Creates a sandbox; asking again after a loss gives the same one. */
export async function createSandbox(
  transport: Transport,
  request: api.CreateSandboxRequest,
  options: CreateOptions,
): Promise<api.Sandbox> {
  return await transport.json<api.Sandbox>("POST", "/v1/sandboxes", {
    json: request,
    headers: { "idempotency-key": options.idempotencyKey ?? randomUUID() },
    signal: options.signal,
    repeatable: true,
  });
}

/** Keeps the files of a sandbox. */
export async function createSnapshot(
  transport: Transport,
  sandbox: string,
  options: SnapshotOptions,
): Promise<api.Snapshot> {
  const { name, labels, paths, signal } = options;
  const json = { name, labels, paths };
  return await transport.json("POST", `/v1/sandboxes/${encodeURIComponent(sandbox)}/snapshots`, { json, signal });
}

export interface ListProcessesOptions extends SignalOptions {
  /** Only of this sandbox, by name or id. */
  readonly sandbox?: string | undefined;
  readonly status?: readonly api.ProcessStatus[] | undefined;
}

export async function listProcesses(transport: Transport, options: ListProcessesOptions): Promise<Process[]> {
  const found: Process[] = [];
  let token: string | undefined;
  do {
    const page: api.ListProcessesResponse = await transport.json("GET", "/v1/processes", {
      query: { sandbox: options.sandbox, status: options.status, page_size: 1000, page_token: token },
      signal: options.signal,
      repeatable: true,
    });
    found.push(...page.processes.map((info) => new Process(transport, info)));
    token = page.nextPageToken ?? undefined;
  } while (token !== undefined);
  return found;
}
