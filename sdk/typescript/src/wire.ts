// JSON on the wire has snake_case, the same as `--json`; objects here have camelCase. The translation is by rule and
// loses nothing, so `toWire(record)` is what `belljar … --json` prints.
import { MAP_FIELDS } from "./generated/api.js";

/** An answer of the server with the names of this language. */
export function fromWire<T>(value: unknown): T {
  return renamed(value, camel) as T;
}

/** A record of this package with the names of the wire. What is `undefined` is left out. */
export function toWire(value: unknown): unknown {
  return renamed(value, snake);
}

function renamed(value: unknown, rename: (name: string) => string): unknown {
  if (Array.isArray(value)) return value.map((entry) => renamed(entry, rename));
  if (value === null || typeof value !== "object") return value;
  const result: Record<string, unknown> = {};
  for (const [name, inner] of Object.entries(value)) {
    if (inner === undefined) continue;
    // The keys of a map are the user's own.
    result[rename(name)] = MAP_FIELDS.has(name) ? inner : renamed(inner, rename);
  }
  return result;
}

function camel(name: string): string {
  return name.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
}

function snake(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/** Bytes as JSON carries them. */
export function base64(data: string | Uint8Array): string {
  if (typeof data === "string") return Buffer.from(data, "utf8").toString("base64");
  return Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString("base64");
}
