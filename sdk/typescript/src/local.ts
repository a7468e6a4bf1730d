// The server of this machine: found by the binary, or started by it. The binary knows the settings and the lock that
// keeps two servers from being started at once, so nothing of that is repeated here.
import { execFile } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { createRequire } from "node:module";
import { delimiter, join } from "node:path";
import { BelljarError, ServerUnreachableError, errorOf } from "./errors.js";

/** Starting includes finishing what a server that was killed left half done. */
const START_TIMEOUT_MS = 90_000;

/** Where the local server and its program are. */
export interface LocalOptions {
  readonly stateDir?: string | undefined;
  readonly binary?: string | undefined;
}

/** The address of the server of this machine, which runs by then. */
export async function findOrStart(options: LocalOptions): Promise<string> {
  const binary = options.binary ?? findBinary();
  const server = JSON.parse(await run(binary, ["server", "start", "--json"], options)) as { addresses: string[] };
  const socket = server.addresses.find((address) => address.startsWith("unix:"));
  if (socket === undefined) {
    throw new ServerUnreachableError({ code: "server-unreachable", message: "the local server has no socket" });
  }
  return socket;
}

/** The program: as `BELLJAR_BINARY` says, of the platform's package, or of `PATH`. */
export function findBinary(): string {
  const chosen = process.env["BELLJAR_BINARY"] || packagedBinary();
  if (chosen !== undefined) return chosen;
  const found = (process.env["PATH"] ?? "")
    .split(delimiter)
    .filter(Boolean)
    .map((directory) => join(directory, "belljar"));
  const binary = found.find(isExecutable);
  if (binary !== undefined) return binary;
  throw new ServerUnreachableError({
    code: "server-unreachable",
    message: "there is no `belljar` program here to start a server with",
    remedy: "install it, name it with `binary` or `BELLJAR_BINARY`, or give the `url` of a server elsewhere",
  });
}

function packagedBinary(): string | undefined {
  const name = `@belljar/${process.platform}-${process.arch}`;
  try {
    const path = createRequire(import.meta.url).resolve(`${name}/belljar`);
    return isExecutable(path) ? path : undefined;
  } catch {
    return undefined;
  }
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

function run(binary: string, words: string[], options: LocalOptions): Promise<string> {
  const directory = options.stateDir === undefined ? [] : ["--state-dir", options.stateDir];
  // Variables that say where a server is would send the binary elsewhere.
  const { BELLJAR_SERVER: _server, BELLJAR_API_KEY: _key, ...env } = process.env;
  return new Promise((resolve, reject) => {
    execFile(binary, [...directory, ...words], { env, timeout: START_TIMEOUT_MS }, (error, stdout, stderr) => {
      if (error === null) resolve(stdout);
      else reject(failure(stdout, stderr, error));
    });
  });
}

/** What the program said of its failure. */
function failure(stdout: string, stderr: string, error: Error): BelljarError {
  try {
    const said = (JSON.parse(stdout) as { error: { code: string; message: string; cause?: string; remedy?: string } })
      .error;
    return errorOf(said);
  } catch {
    const cause = stderr.trim() === "" ? error : new Error(stderr.trim(), { cause: error });
    return new ServerUnreachableError({
      code: "server-unreachable",
      message: "a local server cannot be started",
      cause,
    });
  }
}
