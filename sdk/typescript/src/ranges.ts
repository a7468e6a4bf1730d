// What kind of address an address is. Decided by the bytes alone; an IPv4 address in IPv6 clothes is the IPv4 address.
import { BlockList, isIPv4, isIPv6 } from "node:net";

/** An address and a port, and what is known of such addresses. */
export class Endpoint {
  readonly ip: string;
  readonly port: number;

  constructor(ip: string, port: number) {
    this.ip = plain(ip);
    this.port = port;
  }

  /** `127.0.0.0/8`, `::1`. */
  isLoopback(): boolean {
    return LOOPBACK(this.ip);
  }

  /** Networks that are nobody's in particular: `10.0.0.0/8` and its kin, shared addresses, `fc00::/7`. */
  isPrivate(): boolean {
    return PRIVATE(this.ip);
  }

  /** `169.254.0.0/16`, where clouds keep their metadata, and `fe80::/10`. */
  isLinkLocal(): boolean {
    return LINK_LOCAL(this.ip);
  }

  isMulticast(): boolean {
    return MULTICAST(this.ip);
  }

  /** `255.255.255.255`. */
  isBroadcast(): boolean {
    return BROADCAST(this.ip);
  }

  /** Addresses of examples. */
  isDocumentation(): boolean {
    return DOCUMENTATION(this.ip);
  }

  /** Set aside: unspecified, benchmarks, protocol assignments, translation, and what is not given out. */
  isReserved(): boolean {
    return RESERVED(this.ip) || (isIPv6(this.ip) && !GLOBAL(this.ip) && !isKnown(this.ip));
  }

  /** None of the above. */
  isPublicInternet(): boolean {
    return (isIPv4(this.ip) || GLOBAL(this.ip)) && !RESERVED(this.ip) && !isKnown(this.ip);
  }

  toString(): string {
    return isIPv6(this.ip) ? `[${this.ip}]:${this.port}` : `${this.ip}:${this.port}`;
  }
}

type Test = (ip: string) => boolean;

function among(...subnets: string[]): Test {
  const list = new BlockList();
  for (const subnet of subnets) {
    const [address = "", bits = ""] = subnet.split("/");
    list.addSubnet(address, Number(bits), isIPv4(address) ? "ipv4" : "ipv6");
  }
  return (ip) => (isIPv4(ip) ? list.check(ip, "ipv4") : isIPv6(ip) && list.check(ip, "ipv6"));
}

const LOOPBACK = among("127.0.0.0/8", "::1/128");
const PRIVATE = among("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7", "fec0::/10");
const LINK_LOCAL = among("169.254.0.0/16", "fe80::/10");
const MULTICAST = among("224.0.0.0/4", "ff00::/8");
const BROADCAST = among("255.255.255.255/32");
const DOCUMENTATION = among("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20");
const RESERVED_BUT_BROADCAST = among(
  "0.0.0.0/8",
  "192.0.0.0/24",
  "192.88.99.0/24",
  "198.18.0.0/15",
  "240.0.0.0/4",
  // Translation and tunnels lead to an IPv4 address that these tests would not see.
  "::/128",
  "64:ff9b::/96",
  "64:ff9b:1::/48",
  "100::/64",
  "2001::/23",
  "2002::/16",
  "5f00::/16",
);
const RESERVED: Test = (ip) => RESERVED_BUT_BROADCAST(ip) && !BROADCAST(ip) && !DOCUMENTATION(ip);
/** All of IPv6 that is given out to the public. */
const GLOBAL = among("2000::/3");

function isKnown(ip: string): boolean {
  return [LOOPBACK, PRIVATE, LINK_LOCAL, MULTICAST, BROADCAST, DOCUMENTATION].some((test) => test(ip));
}

/** An IPv4 address that is written as `::ffff:…` is one. */
function plain(ip: string): string {
  if (!isIPv6(ip)) return ip;
  const whole = new URL(`http://[${ip}]`).hostname.slice(1, -1);
  const [, high, low] = /^::ffff:([0-9a-f]{1,4}):([0-9a-f]{1,4})$/.exec(whole) ?? [];
  if (high === undefined || low === undefined) return whole;
  const value = Number.parseInt(high, 16) * 0x10000 + Number.parseInt(low, 16);
  return [24, 16, 8, 0].map((shift) => (value >>> shift) & 0xff).join(".");
}
