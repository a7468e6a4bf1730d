// A real server for a test, with a state directory of its own; nothing of it is left behind.
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before } from "node:test";
import { promisify } from "node:util";
import { Belljar } from "belljar";

const run = promisify(execFile);

/** The program that is tested. */
export const BINARY = process.env["BELLJAR_TEST_BIN"] ?? "belljar";

export class TestServer {
  readonly stateDir: string;
  #process: ChildProcess | undefined;
  #url = "";
  #port = 0;

  readonly #words: readonly string[];

  private constructor(stateDir: string, words: readonly string[]) {
    this.stateDir = stateDir;
    this.#words = words;
  }

  static async start(...words: string[]): Promise<TestServer> {
    const server = new TestServer(await mkdtemp(join(tmpdir(), "belljar-sdk-")), words);
    await server.serve();
    return server;
  }

  get url(): string {
    return this.#url;
  }

  get socket(): string {
    return `unix:${join(this.stateDir, "server.sock")}`;
  }

  /** Starts it, or starts it again where it was. */
  async serve(): Promise<void> {
    const words = [
      "serve",
      "--listen",
      `127.0.0.1:${this.#port}`,
      "--json",
      "--state-dir",
      this.stateDir,
      ...this.#words,
    ];
    const child = spawn(BINARY, words, { stdio: ["ignore", "pipe", "inherit"], env: environment() });
    this.#process = child;
    const line = await new Promise<string>((resolve, reject) => {
      child.stdout.once("data", (data: Buffer) => resolve(data.toString()));
      child.once("error", reject);
      child.once("exit", (code) => reject(new Error(`the server ended with ${code}`)));
    });
    const { addresses } = JSON.parse(line) as { addresses: string[] };
    this.#url = addresses.find((address) => address.startsWith("http")) ?? "";
    this.#port = Number(new URL(this.#url).port);
  }

  /** Ends it, as an operator would or as a crash would. */
  async end(signal: NodeJS.Signals): Promise<void> {
    const child = this.#process;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill(signal);
    await ended;
  }

  /** Destroys everything it has and ends it. */
  async stop(): Promise<void> {
    await this.end("SIGTERM");
    await cleanUp(this.stateDir);
  }
}

/** Destroys what a state directory has, and the directory. */
export async function cleanUp(stateDir: string): Promise<void> {
  const words = ["--state-dir", stateDir];
  await run(BINARY, [...words, "destroy", "--all"], { env: environment() }).catch(() => undefined);
  await run(BINARY, [...words, "server", "stop"], { env: environment() }).catch(() => undefined);
  await rm(stateDir, { recursive: true, force: true });
}

/** The environment without what would lead elsewhere. */
export function environment(): NodeJS.ProcessEnv {
  const { BELLJAR_SERVER: _server, BELLJAR_API_KEY: _key, BELLJAR_STATE_DIR: _dir, ...rest } = process.env;
  return rest;
}

/** A server and a client for the tests of a file. */
export function useServer(): { readonly server: TestServer; readonly client: Belljar } {
  let server: TestServer | undefined;
  let client: Belljar | undefined;
  before(async () => {
    server = await TestServer.start();
    client = new Belljar(server.url);
  });
  after(async () => {
    client?.close();
    await server?.stop();
  });
  const there = <T>(value: T | undefined): T => {
    if (value === undefined) throw new Error("the server has not been started");
    return value;
  };
  return {
    get server() {
      return there(server);
    },
    get client() {
      return there(client);
    },
  };
}

/** The error that a promise ends with. */
export async function failureOf(promise: Promise<unknown>): Promise<Error & { code?: string }> {
  try {
    await promise;
  } catch (error) {
    if (error instanceof Error) return error;
    throw new Error(`no error was thrown but ${String(error)}`);
  }
  throw new Error("nothing failed");
}

/** A certificate of this machine's loopback, which only who is told of it trusts; nothing where there is no openssl. */
export async function selfSigned(): Promise<{ directory: string; certificate: string; key: string } | undefined> {
  const directory = await mkdtemp(join(tmpdir(), "belljar-tls-"));
  const [certificate, key] = [join(directory, "certificate.pem"), join(directory, "key.pem")];
  const kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1"];
  const names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"];
  try {
    await run("openssl", ["req", ...kind, ...names, "-keyout", key, "-out", certificate]);
    return { directory, certificate, key };
  } catch {
    await rm(directory, { recursive: true });
    return undefined;
  }
}

/** Checks again and again until it holds; the last failure is told after a minute. */
export async function eventually(check: () => Promise<void>): Promise<void> {
  const end = Date.now() + 60_000;
  for (;;) {
    try {
      return await check();
    } catch (error) {
      if (Date.now() > end) throw error;
    }
  }
}
