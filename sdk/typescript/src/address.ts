// Where a server is, and the connections to it.
import { closeSync, constants, openSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import { basename, dirname, resolve } from "node:path";
import { invalid } from "./errors.js";

/** The kernel's room for a socket's name, without its end. */
const LONGEST_SOCKET = 107;

/** How requests reach a server. */
export interface Address {
  /** For messages. */
  readonly text: string;
  readonly agent: http.Agent;
  readonly options: http.RequestOptions;
  readonly request: typeof http.request;
  /** What is trusted; absent without TLS. */
  readonly tls?: { readonly ca?: string | Buffer } | undefined;
  close(): void;
}

/** Reads `http://HOST[:PORT]`, `https://HOST[:PORT]`, `unix:PATH`, or an absolute path. */
export function addressOf(text: string, tls: { ca?: string | Buffer | undefined } = {}): Address {
  if (text.startsWith("unix:")) return unix(text.slice("unix:".length).replace(/^\/\//, ""), text);
  if (text.startsWith("/")) return unix(text, `unix:${text}`);
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if ((url?.protocol !== "http:" && url?.protocol !== "https:") || url.hostname === "") throw noAddress(text);
  const secure = url.protocol === "https:";
  const agent = secure ? new https.Agent({ keepAlive: true }) : new http.Agent({ keepAlive: true });
  const trust = tls.ca === undefined ? {} : { ca: tls.ca };
  return {
    text,
    agent,
    request: secure ? https.request : http.request,
    tls: secure ? trust : undefined,
    options: { host: url.hostname.replace(/^\[|\]$/g, ""), port: url.port || (secure ? 443 : 80), ...trust },
    close: () => agent.destroy(),
  };
}

function unix(path: string, text: string): Address {
  if (path === "") throw noAddress(text);
  const agent = new http.Agent({ keepAlive: true });
  const whole = resolve(path);
  if (Buffer.byteLength(whole) <= LONGEST_SOCKET) {
    return { text, agent, request: http.request, options: { socketPath: whole }, close: () => agent.destroy() };
  }
  // By way of the directory's descriptor a name of any length can be reached.
  const directory = openSync(dirname(whole), constants.O_RDONLY | constants.O_DIRECTORY);
  const near = `/proc/self/fd/${directory}/${basename(whole)}`;
  const close = (): void => {
    agent.destroy();
    closeSync(directory);
  };
  return { text, agent, request: http.request, options: { socketPath: near }, close };
}

function noAddress(text: string): Error {
  return invalid(
    `\`${text}\` is no address of a server`,
    "write `http://HOST:PORT`, `https://HOST:PORT` or `unix:PATH`",
  );
}
