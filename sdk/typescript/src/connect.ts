// From what a caller says to a connection: options first, then the environment, then the server of this machine.
import { Transport } from "./transport.js";

export interface ClientOptions {
  /** `http://HOST:PORT`, `https://HOST:PORT` or `unix:PATH`. Absent: `BELLJAR_SERVER`, else the local server. */
  readonly url?: string | undefined;
  /** Absent: `BELLJAR_API_KEY`. */
  readonly apiKey?: string | undefined;
  /** State directory of the local server. Absent: `BELLJAR_STATE_DIR`, else as `belljar` has it. */
  readonly stateDir?: string | undefined;
  /** The `belljar` program that starts the local server. Absent: `BELLJAR_BINARY`, else the platform's package, else that of `PATH`. */
  readonly binary?: string | undefined;
  /** Certificates to trust for `https` beside those of this machine. */
  readonly ca?: string | Buffer | undefined;
}

export function transportOf(given: string | ClientOptions = {}): Transport {
  const options = typeof given === "string" ? { url: given } : given;
  const local = options.stateDir !== undefined || options.binary !== undefined;
  const url = options.url ?? (local ? undefined : process.env["BELLJAR_SERVER"] || undefined);
  const apiKey = options.apiKey ?? (url === undefined ? undefined : process.env["BELLJAR_API_KEY"] || undefined);
  return new Transport({ ...options, url, apiKey });
}
