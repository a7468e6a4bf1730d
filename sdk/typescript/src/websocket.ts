// A WebSocket client (RFC 6455) on a connection that HTTP handed over: as much of it as our server speaks, with text
// and binary messages, pings and an orderly end. No extensions. What breaks the protocol ends the connection.
import { createHash, randomBytes } from "node:crypto";
import type { Duplex } from "node:stream";
import { lostConnection } from "./errors.js";
import type { Transport } from "./transport.js";

const GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/** The largest message that is taken. */
const LONGEST_MESSAGE = 16 << 20;
/** Who was told goodbye has so long to say it too. */
const GOODBYE_MS = 2_000;

const CONTINUATION = 0x0;
const TEXT = 0x1;
const BINARY = 0x2;
const CLOSE = 0x8;
const PING = 0x9;
const PONG = 0xa;

/** A message: text as text, binary as bytes. */
export type Message = string | Uint8Array;

export class WebSocketConnection implements AsyncIterable<Message> {
  readonly #socket: Duplex;
  readonly #frames: AsyncGenerator<Frame, void, undefined>;
  #closing = false;

  /** @internal */
  constructor(socket: Duplex, head: Buffer) {
    this.#socket = socket;
    // Whoever reads is told; a socket that nobody reads must not end the program.
    socket.on("error", () => undefined);
    this.#frames = framesOf(socket, head);
  }

  static async connect(transport: Transport, path: string, signal?: AbortSignal): Promise<WebSocketConnection> {
    const key = randomBytes(16).toString("base64");
    const headers = {
      connection: "Upgrade",
      upgrade: "websocket",
      "sec-websocket-version": "13",
      "sec-websocket-key": key,
    };
    const { answer, socket, head } = await transport.upgrade(path, headers, signal);
    const expected = createHash("sha1")
      .update(key + GUID)
      .digest("base64");
    if (answer.headers["sec-websocket-accept"] !== expected) {
      socket.destroy();
      throw lostConnection("what answers there speaks no WebSocket");
    }
    return new WebSocketConnection(socket, head);
  }

  /** Sends a message; done when there is room for the next. */
  async send(message: Message): Promise<void> {
    const [opcode, data] = typeof message === "string" ? [TEXT, Buffer.from(message)] : [BINARY, message];
    await this.#write(opcode, data);
  }

  /** The messages, to an orderly end. An end without one is thrown. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Message, void, undefined> {
    let opcode = CONTINUATION;
    let parts: Buffer[] = [];
    let size = 0;
    try {
      for await (const frame of this.#frames) {
        if (frame.opcode === PING) await this.#write(PONG, frame.data);
        if (frame.opcode === CLOSE) {
          if (!this.#closing) await this.#write(CLOSE, frame.data.subarray(0, 2)).catch(() => undefined);
          return;
        }
        if (frame.opcode >= CLOSE) continue;
        if ((frame.opcode === CONTINUATION) !== (opcode !== CONTINUATION)) throw broken("a part without its message");
        opcode ||= frame.opcode;
        size += frame.data.length;
        if (size > LONGEST_MESSAGE) throw broken("a message that is too large");
        parts.push(frame.data);
        if (!frame.last) continue;
        const whole = Buffer.concat(parts);
        const message = opcode === TEXT ? new TextDecoder("utf-8", { fatal: true }).decode(whole) : whole;
        [opcode, parts, size] = [CONTINUATION, [], 0];
        yield message;
      }
      if (!this.#closing) throw broken("the end of the connection");
    } finally {
      this.#socket.destroy();
    }
  }

  /** Says goodbye. Whoever reads sees the end. */
  close(): void {
    if (this.#closing) return;
    this.#closing = true;
    this.#write(CLOSE, Buffer.from([0x03, 0xe8])).catch(() => undefined);
    setTimeout(() => this.#socket.destroy(), GOODBYE_MS).unref();
  }

  async #write(opcode: number, data: Uint8Array): Promise<void> {
    if (!this.#socket.writable) throw lostConnection("the connection has ended");
    await new Promise<void>((resolve, reject) => {
      this.#socket.write(masked(opcode, data), (error) => (error ? reject(lostConnection(error)) : resolve()));
    });
  }
}

interface Frame {
  readonly last: boolean;
  readonly opcode: number;
  readonly data: Buffer;
}

/** A frame as a client has to send it: masked, so that nothing on the way takes it for something else. */
export function masked(opcode: number, data: Uint8Array): Buffer {
  const long = data.length > 0xffff ? 8 : data.length > 125 ? 2 : 0;
  const frame = Buffer.allocUnsafe(2 + long + 4 + data.length);
  frame[0] = 0x80 | opcode;
  frame[1] = 0x80 | (long === 8 ? 127 : long === 2 ? 126 : data.length);
  if (long === 2) frame.writeUInt16BE(data.length, 2);
  if (long === 8) frame.writeBigUInt64BE(BigInt(data.length), 2);
  const mask = randomBytes(4);
  mask.copy(frame, 2 + long);
  const start = 6 + long;
  for (let index = 0; index < data.length; index += 1) {
    frame[start + index] = (data[index] ?? 0) ^ (mask[index & 3] ?? 0);
  }
  return frame;
}

async function* framesOf(socket: Duplex, head: Buffer): AsyncGenerator<Frame, void, undefined> {
  let rest = head;
  const pieces = (socket as AsyncIterable<Buffer>)[Symbol.asyncIterator]();
  const ended = Symbol("ended");
  const need = async (size: number): Promise<void> => {
    const parts = [rest];
    let have = rest.length;
    while (have < size) {
      const next = await pieces.next().catch((error: unknown) => {
        throw lostConnection(error);
      });
      if (next.done) throw have === 0 ? ended : broken("the end of a frame");
      parts.push(next.value);
      have += next.value.length;
    }
    if (parts.length > 1) rest = Buffer.concat(parts);
  };
  try {
    for (;;) {
      await need(2);
      const [first = 0, second = 0] = rest;
      if ((first & 0x70) !== 0 || (second & 0x80) !== 0) throw broken("a frame");
      const opcode = first & 0x0f;
      const last = (first & 0x80) !== 0;
      const short = second & 0x7f;
      const long = short === 127 ? 8 : short === 126 ? 2 : 0;
      await need(2 + long);
      const size = long === 8 ? Number(rest.readBigUInt64BE(2)) : long === 2 ? rest.readUInt16BE(2) : short;
      if (size > LONGEST_MESSAGE || (opcode >= CLOSE && (size > 125 || !last)))
        throw broken("a frame that is too large");
      await need(2 + long + size);
      const data = rest.subarray(2 + long, 2 + long + size);
      rest = rest.subarray(2 + long + size);
      yield { last, opcode, data };
    }
  } catch (error) {
    if (error !== ended) throw error;
  }
}

function broken(what: string): Error {
  return lostConnection(`the server sent ${what} where none may be`);
}
