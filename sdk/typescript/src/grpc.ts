// A gRPC call of two streams over an HTTP/2 connection of its own: as much of it as joining bytes to a port needs, where
// HTTP/1.1 has nothing that ends in one direction only. Two messages, each with few fields, are written by hand here.
import { type ClientHttp2Session, type ClientHttp2Stream, connect as connectHttp2 } from "node:http2";
import { connect } from "node:net";
import type { Duplex } from "node:stream";
import type { Address } from "./address.js";
import { lostConnection } from "./errors.js";

/** What stands before each message: whether it is compressed, and its length. */
const PREFIX = 5;
/** The largest message that is taken; the server's are smaller. */
const LONGEST_MESSAGE = 4 << 20;
const VARINT = 0;
const BYTES = 2;

/** A call that stands, and the connection that is its own. */
export interface GrpcCall {
  readonly session: ClientHttp2Session;
  readonly stream: ClientHttp2Stream;
}

/** Connects and asks. Fails where nobody is there; what the server says comes with the stream. */
export async function openCall(address: Address, path: string, headers: Record<string, string>): Promise<GrpcCall> {
  const { socketPath, host, port } = address.options;
  const where =
    socketPath === undefined ? `${String(host).includes(":") ? `[${host}]` : host}:${port}` : "belljar.localhost";
  const session = connectHttp2(`${address.tls === undefined ? "http" : "https"}://${where}`, {
    ...address.tls,
    ...(socketPath === undefined ? {} : { createConnection: (): Duplex => connect(socketPath) }),
  });
  await new Promise<void>((resolve, reject) => {
    session.once("connect", () => resolve());
    session.once("error", reject);
  });
  // Whoever reads or writes the stream is told.
  session.on("error", () => undefined);
  const stream = session.request({
    ":method": "POST",
    ":path": path,
    "content-type": "application/grpc",
    te: "trailers",
    ...headers,
  });
  stream.on("error", () => undefined);
  return { session, stream };
}

/** A message, ready to be sent. */
export function framed(...fields: Buffer[]): Buffer {
  const prefix = Buffer.alloc(PREFIX);
  prefix.writeUInt32BE(
    fields.reduce((sum, field) => sum + field.length, 0),
    1,
  );
  return Buffer.concat([prefix, ...fields]);
}

/** A field that is text or bytes. */
export function bytesField(number: number, value: string | Uint8Array): Buffer {
  const data = typeof value === "string" ? Buffer.from(value) : value;
  return Buffer.concat([varint((number << 3) | BYTES), varint(data.length), data]);
}

/** A field that is a number. */
export function numberField(number: number, value: number): Buffer {
  return Buffer.concat([varint((number << 3) | VARINT), varint(value)]);
}

/** The messages of a stream, without what is before each. */
export async function* messagesOf(stream: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void, undefined> {
  let rest: Buffer = Buffer.alloc(0);
  for await (const piece of stream) {
    rest = rest.length === 0 ? piece : Buffer.concat([rest, piece]);
    while (rest.length >= PREFIX) {
      const size = rest.readUInt32BE(1);
      if (rest[0] !== 0 || size > LONGEST_MESSAGE) throw lostConnection("the server sent a message that is none");
      if (rest.length < PREFIX + size) break;
      yield rest.subarray(PREFIX, PREFIX + size);
      rest = rest.subarray(PREFIX + size);
    }
  }
  if (rest.length > 0) throw lostConnection("the server sent half a message");
}

/** A field of a message that is bytes; others are passed over. */
export function bytesOf(message: Buffer, number: number): Buffer {
  let at = 0;
  const read = (): number => {
    for (let value = 0, factor = 1; ; factor *= 128) {
      const byte = message[at++];
      if (byte === undefined) throw lostConnection("the server sent half a field");
      value += (byte & 0x7f) * factor;
      if (byte < 0x80) return value;
    }
  };
  while (at < message.length) {
    const key = read();
    if ((key & 7) === VARINT) {
      read();
      continue;
    }
    if ((key & 7) !== BYTES) throw lostConnection("the server sent a field that is not known");
    const size = read();
    if (key >> 3 === number) return message.subarray(at, at + size);
    at += size;
  }
  return Buffer.alloc(0);
}

function varint(value: number): Buffer {
  const bytes: number[] = [];
  for (; value >= 0x80; value = Math.floor(value / 128)) bytes.push((value % 128) | 0x80);
  return Buffer.from([...bytes, value]);
}
