// Decisions about the network, made in this process. Default deny: a connection that the policy does not accept, or an
// exception, is denied. Host names are those for which the server's own DNS gave the sandbox an address.
import { isIPv6 } from "node:net";
import type { Answer, ConnectionCall, RequestCall, WireTls } from "./conversation.js";
import { invalid } from "./errors.js";
import { Endpoint } from "./ranges.js";

/** Decides about a connection by accepting it, or not. */
export type ConnectionPolicy = (connection: Connection) => void | Promise<void>;

/** Sees a request on its way out and may change its headers, or deny it; an exception denies, too. */
export type Middleware = (request: HttpRequest) => void | Promise<void>;

/** A destination: `IP:PORT`, its parts (those that are absent match anything), or a test. */
export type EndpointMatcher =
  string | { readonly ip?: string | undefined; readonly port?: number | undefined } | ((endpoint: Endpoint) => boolean);

/** What is known of a connection before it is made; names are never the sandbox's word. */
export interface HttpCandidate {
  readonly hostname: string;
  readonly port: number;
  readonly src: Endpoint;
  readonly dst: Endpoint;
}

/** A host, `*.domain` for any depth below a domain, or a test. */
export type HttpMatcher = string | ((candidate: HttpCandidate) => boolean);

export interface Tls {
  readonly sni: string | undefined;
  readonly alpn: readonly string[];
}

/** What can be accepted, and is `undefined` where it does not match, so that `?.accept()` reads well. */
export interface Match {
  /** Always true: `if (connection.matchTcp("…")?.accept()) return;` */
  accept(): true;
}

export interface DnsMatch {
  readonly name: string;
  readonly type: string;
  /** The answer comes from the first of these resolvers, as `IP` or `IP:PORT`. Absent: from the server's own. */
  accept(options?: { readonly resolvers?: readonly string[] | undefined }): true;
}

export interface HttpMatch extends HttpCandidate {
  /** Only HTTP may follow, and each request goes through the middleware. */
  accept(middleware?: Middleware): true;
}

/** A connection that a sandbox wants to make. */
export class Connection {
  readonly transport: "tcp" | "udp";
  readonly src: Endpoint;
  /** What the sandbox asked for. */
  readonly dst: Endpoint;
  /** The name for which the server's DNS gave the sandbox this address. */
  readonly host: string | undefined;
  /** What the sandbox says in TLS, where it was read already: a claim. */
  readonly tls: Tls | undefined;
  /** The rule that leaves it to this process. */
  readonly rule: string | undefined;
  readonly #dns: { readonly name: string; readonly type: string } | undefined;
  #verdict: { resolver?: string; http?: Middleware } | undefined;
  #reason = "the connection policy did not accept it";

  /** @internal */
  constructor(call: ConnectionCall) {
    this.transport = call.transport;
    this.src = endpoint(call.source);
    this.dst = endpoint(call.destination);
    this.host = call.host ?? undefined;
    this.tls = tlsOf(call.tls);
    this.rule = call.rule ?? undefined;
    this.#dns = call.dns ?? undefined;
  }

  /** Accepts it as it is, whatever is spoken over it. */
  accept(): true {
    this.#verdict = {};
    return true;
  }

  /** Denies it, as doing nothing does, and says why in the record. */
  deny(reason: string): void {
    this.#verdict = undefined;
    this.#reason = reason;
  }

  /** A question to the server's DNS, over UDP or TCP. */
  matchDns(): DnsMatch | undefined {
    const dns = this.#dns;
    if (dns === undefined) return undefined;
    return {
      ...dns,
      accept: ({ resolvers } = {}) => {
        const [first] = resolvers ?? [];
        this.#verdict = first === undefined ? {} : { resolver: resolver(first) };
        return true;
      },
    };
  }

  matchTcp(matcher: EndpointMatcher): Match | undefined {
    return this.#matchTransport("tcp", matcher);
  }

  matchUdp(matcher: EndpointMatcher): Match | undefined {
    return this.#matchTransport("udp", matcher);
  }

  /** HTTP to a host by its name. An address that has no name is matched by itself, as text, and by nothing else. */
  matchHttp(matcher: HttpMatcher): HttpMatch | undefined {
    if (this.transport !== "tcp" || this.#dns !== undefined) return undefined;
    if (this.host === undefined && matcher !== this.dst.ip) return undefined;
    const hostname = this.host ?? this.dst.ip;
    const candidate = { hostname, port: this.dst.port, src: this.src, dst: this.dst };
    const matches = typeof matcher === "string" ? matchesHost(matcher, hostname) : matcher(candidate);
    if (!matches) return undefined;
    return {
      ...candidate,
      accept: (middleware) => {
        this.#verdict = { http: middleware ?? (() => undefined) };
        return true;
      },
    };
  }

  #matchTransport(transport: "tcp" | "udp", matcher: EndpointMatcher): Match | undefined {
    if (this.transport !== transport || this.#dns !== undefined || !matchesEndpoint(matcher, this.dst))
      return undefined;
    return { accept: () => this.accept() };
  }

  /** @internal */
  get verdict(): { allow: boolean; reason: string; resolver?: string; http?: Middleware } {
    if (this.#verdict === undefined) return { allow: false, reason: this.#reason };
    return { allow: true, reason: "", ...this.#verdict };
  }
}

/** An HTTP request on its way out of a sandbox. */
export class HttpRequest {
  readonly protocol: "http/1.1" | "h2";
  /** With the verified host. */
  readonly url: URL;
  readonly method: string;
  /** Those of the request that goes out. What is set here is never visible inside. */
  readonly headers: Headers;
  readonly destination: { readonly src: Endpoint; readonly original: Endpoint; readonly hostname: string | undefined };
  readonly tls: Tls | undefined;
  #denied: string | undefined;

  /** @internal */
  constructor(call: RequestCall) {
    this.protocol = call.protocol;
    this.url = new URL(call.url);
    this.method = call.method;
    this.headers = new Headers();
    for (const { name, value } of call.headers) this.headers.append(name, value);
    this.destination = {
      src: endpoint(call.source),
      original: endpoint(call.destination),
      hostname: call.host ?? undefined,
    };
    this.tls = tlsOf(call.tls);
  }

  /** Denies it; whoever sent it is told why. What an exception says is on record only. */
  deny(reason: string): void {
    this.#denied = reason;
  }

  /** @internal */
  get denied(): string | undefined {
    return this.#denied;
  }
}

/** The connections that were accepted for HTTP only, and what their requests go through. */
const MOST_CONNECTIONS = 16_384;

/** One sandbox's decisions. */
export class Decider {
  readonly #policy: ConnectionPolicy;
  readonly #middleware = new Map<string, Middleware>();

  constructor(policy: ConnectionPolicy) {
    this.#policy = policy;
  }

  async connection(call: ConnectionCall): Promise<Answer> {
    const connection = new Connection(call);
    const flow = flowOf(call);
    // The port is used anew: what was accepted for its last connection is no longer.
    this.#middleware.delete(flow);
    await this.#policy(connection);
    const { allow, reason, resolver, http } = connection.verdict;
    if (http !== undefined) {
      const [oldest] = this.#middleware.keys();
      if (this.#middleware.size >= MOST_CONNECTIONS && oldest !== undefined) this.#middleware.delete(oldest);
      this.#middleware.set(flow, http);
    }
    return {
      connection: {
        allow,
        reason,
        scope: "once",
        http: http !== undefined,
        ...(resolver === undefined ? {} : { resolver }),
      },
    };
  }

  async request(call: RequestCall): Promise<Answer> {
    const middleware = this.#middleware.get(flowOf(call));
    if (middleware === undefined)
      return { request: { allow: false, reason: "its connection was not accepted for HTTP" } };
    const request = new HttpRequest(call);
    const before = new Headers(request.headers);
    await middleware(request);
    if (request.denied !== undefined) return { request: { allow: false, reason: request.denied } };
    const setHeaders = [...request.headers]
      .filter(([name, value]) => before.get(name) !== value)
      .map(([name, value]) => ({ name, value }));
    const removeHeaders = [...before.keys()].filter((name) => !request.headers.has(name));
    return { request: { allow: true, reason: "", setHeaders, removeHeaders } };
  }
}

function flowOf(call: ConnectionCall | RequestCall): string {
  return `${endpoint(call.source)} ${endpoint(call.destination)}`;
}

function endpoint(wire: { ip: string; port: number } | null): Endpoint {
  return new Endpoint(wire?.ip ?? "", wire?.port ?? 0);
}

function tlsOf(tls: WireTls | null): Tls | undefined {
  return tls === null ? undefined : { sni: tls.sni ?? undefined, alpn: tls.alpn };
}

export function matchesHost(matcher: string, host: string): boolean {
  const wanted = matcher.toLowerCase();
  if (wanted.startsWith("*.")) return host.endsWith(wanted.slice(1)) && host.length > wanted.length - 1;
  return host === wanted;
}

function matchesEndpoint(matcher: EndpointMatcher, dst: Endpoint): boolean {
  if (typeof matcher === "function") return matcher(dst);
  const wanted = typeof matcher === "string" ? parsed(matcher) : matcher;
  return (
    (wanted.ip === undefined || new Endpoint(wanted.ip, 0).ip === dst.ip) &&
    (wanted.port === undefined || wanted.port === dst.port)
  );
}

function parsed(text: string): { ip: string; port: number } {
  const [, six, four, port] = /^(?:\[([^\]]+)\]|([^:]+)):(\d+)$/.exec(text) ?? [];
  const ip = six ?? four;
  if (ip === undefined || port === undefined)
    throw invalid(`\`${text}\` is no address and port`, "write `IP:PORT`, or `[IP]:PORT`");
  return { ip, port: Number(port) };
}

function resolver(text: string): string {
  if (isIPv6(text)) return `[${text}]:53`;
  return text.includes(":") ? text : `${text}:53`;
}
