// Decisions as values: what a policy sees, and what becomes of what it says.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { ConnectionCall, RequestCall } from "../src/conversation.js";
import { type ConnectionPolicy, Decider } from "../src/decide.js";
import { Endpoint } from "../src/ranges.js";

function call(over: Partial<ConnectionCall> = {}): ConnectionCall {
  const base: ConnectionCall = {
    transport: "tcp",
    source: { ip: "10.200.0.2", port: 40_000 },
    destination: { ip: "93.184.216.34", port: 443 },
    host: "api.example.com",
    dns: null,
    tls: null,
    rule: null,
  };
  return { ...base, ...over };
}

function request(over: Partial<RequestCall> = {}): RequestCall {
  const { source, destination, host } = call();
  const base: RequestCall = {
    method: "GET",
    url: "https://api.example.com/user",
    protocol: "h2",
    headers: [
      { name: "accept", value: "a" },
      { name: "cookie", value: "c" },
    ],
    source,
    destination,
    host,
    tls: { sni: "api.example.com", alpn: ["h2"] },
  };
  return { ...base, ...over };
}

async function verdict(policy: ConnectionPolicy, over: Partial<ConnectionCall> = {}): Promise<unknown> {
  const { connection } = await new Decider(policy).connection(call(over));
  return connection?.allow === true ? { http: connection.http, resolver: connection.resolver } : connection?.reason;
}

test("nothing is accepted unless it is", async () => {
  assert.equal(await verdict(() => undefined), "the connection policy did not accept it");
  assert.equal(await verdict((conn) => conn.deny("not today")), "not today");
  assert.deepEqual(await verdict((conn) => void conn.accept()), { http: false, resolver: undefined });
  await assert.rejects(
    verdict(() => {
      throw new Error("broke");
    }),
    /broke/,
  );
});

test("matches by transport, address, name and question", async () => {
  const open = { http: false, resolver: undefined };
  const denied = "the connection policy did not accept it";
  const check = async (policy: ConnectionPolicy, over: Partial<ConnectionCall>, expected: unknown): Promise<void> => {
    assert.deepEqual(await verdict(policy, over), expected, policy.toString());
  };
  await check((conn) => void conn.matchTcp("93.184.216.34:443")?.accept(), {}, open);
  await check((conn) => void conn.matchTcp("93.184.216.34:80")?.accept(), {}, denied);
  await check((conn) => void conn.matchUdp("93.184.216.34:443")?.accept(), {}, denied);
  await check((conn) => void conn.matchUdp({ port: 443 })?.accept(), { transport: "udp" }, open);
  await check((conn) => void conn.matchTcp((dst) => dst.isPublicInternet())?.accept(), {}, open);
  await check(
    (conn) => void conn.matchTcp("[2606:4700::1]:22")?.accept(),
    { destination: { ip: "2606:4700:0::1", port: 22 } },
    open,
  );
  await check((conn) => void conn.matchHttp("api.example.com")?.accept(), {}, { http: true, resolver: undefined });
  await check((conn) => void conn.matchHttp("*.example.com")?.accept(), {}, { http: true, resolver: undefined });
  await check((conn) => void conn.matchHttp("*.api.example.com")?.accept(), {}, denied);
  await check((conn) => void conn.matchHttp("example.com")?.accept(), {}, denied);
  await check(
    (conn) => void conn.matchHttp(({ hostname, port }) => hostname.endsWith(".com") && port === 443)?.accept(),
    {},
    { http: true, resolver: undefined },
  );
  await check((conn) => void conn.matchHttp(() => true)?.accept(), { host: null }, denied);
  const address = { http: true, resolver: undefined };
  await check((conn) => void conn.matchHttp("93.184.216.34")?.accept(), { host: null }, address);
  await check((conn) => void conn.matchHttp("93.184.216.34")?.accept(), {}, denied);
  const dns = { dns: { name: "api.example.com", type: "A" }, transport: "udp" as const };
  await check((conn) => void conn.matchDns()?.accept(), {}, denied);
  await check((conn) => void conn.matchDns()?.accept(), dns, open);
  await check((conn) => void conn.matchDns()?.accept({ resolvers: ["1.1.1.1", "8.8.8.8"] }), dns, {
    http: false,
    resolver: "1.1.1.1:53",
  });
  await check((conn) => void conn.matchUdp(() => true)?.accept(), dns, denied);
  await assert.rejects(
    verdict((conn) => void conn.matchTcp("nonsense")?.accept()),
    /IP:PORT|address and port/,
  );
});

test("a request goes through the middleware of its connection, and nowhere else", async () => {
  const seen: string[] = [];
  const decider = new Decider((conn) => {
    if (conn.dst.port !== 443) return;
    conn.matchHttp("api.example.com")?.accept((request) => {
      seen.push(
        `${request.method} ${request.url.pathname} ${request.destination.hostname} ${request.tls?.sni} ${request.protocol}`,
      );
      if (request.method === "DELETE") throw new Error("never");
      request.headers.set("authorization", "Bearer secret");
      request.headers.delete("cookie");
    });
  });
  assert.equal((await decider.request(request())).request?.allow, false);
  await decider.connection(call());
  assert.deepEqual(await decider.request(request()), {
    request: {
      allow: true,
      reason: "",
      setHeaders: [{ name: "authorization", value: "Bearer secret" }],
      removeHeaders: ["cookie"],
    },
  });
  assert.deepEqual(seen, ["GET /user api.example.com api.example.com h2"]);
  await assert.rejects(decider.request(request({ method: "DELETE" })), /never/);
  assert.equal((await decider.request(request({ source: { ip: "10.200.0.2", port: 40_001 } }))).request?.allow, false);
  // The same port again, for something that is not accepted.
  await decider.connection(call({ host: "elsewhere.example" }));
  assert.equal((await decider.request(request())).request?.allow, false);
});

test("addresses are what their bytes say", () => {
  const kinds = (ip: string): string => {
    const address = new Endpoint(ip, 1);
    const tests = [
      "isLoopback",
      "isPrivate",
      "isLinkLocal",
      "isMulticast",
      "isBroadcast",
      "isDocumentation",
      "isReserved",
      "isPublicInternet",
    ] as const;
    return tests.filter((name) => address[name]()).join(" ");
  };
  const expected: Record<string, string> = {
    "127.0.0.1": "isLoopback",
    "::1": "isLoopback",
    "::ffff:127.0.0.1": "isLoopback",
    "::ffff:7f00:1": "isLoopback",
    "10.1.2.3": "isPrivate",
    "172.31.255.255": "isPrivate",
    "172.32.0.1": "isPublicInternet",
    "192.168.0.1": "isPrivate",
    "100.64.0.1": "isPrivate",
    "fd00::1": "isPrivate",
    "::ffff:192.168.1.1": "isPrivate",
    "169.254.169.254": "isLinkLocal",
    "fe80::1": "isLinkLocal",
    "224.0.0.1": "isMulticast",
    "ff02::1": "isMulticast",
    "255.255.255.255": "isBroadcast",
    "203.0.113.9": "isDocumentation",
    "2001:db8::1": "isDocumentation",
    "0.0.0.0": "isReserved",
    "240.0.0.1": "isReserved",
    "198.18.0.1": "isReserved",
    "::": "isReserved",
    "64:ff9b::a00:1": "isReserved",
    "2002:7f00:1::": "isReserved",
    "4000::1": "isReserved",
    "8.8.8.8": "isPublicInternet",
    "2606:4700::1111": "isPublicInternet",
    nonsense: "",
  };
  for (const [ip, kind] of Object.entries(expected)) assert.equal(kinds(ip), kind, ip);
  assert.equal(String(new Endpoint("::FFFF:1.2.3.4", 5)), "1.2.3.4:5");
  assert.equal(String(new Endpoint("2606:4700:0:0::1", 5)), "[2606:4700::1]:5");
});
