// What is offered, refused and offered again, with a server that does nothing by itself.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import http from "node:http";
import type { AddressInfo } from "node:net";
import type { Duplex } from "node:stream";
import { test } from "node:test";
import { Callbacks } from "../src/callbacks.js";
import { Conversation, type Offer } from "../src/conversation.js";
import type { BelljarError } from "../src/errors.js";
import { Transport } from "../src/transport.js";
import { WebSocketConnection } from "../src/websocket.js";
import { failureOf } from "./server.js";

/** A client that a server of the test's own listens to: which tool is offered, each time it says so. */
class Heard {
  readonly socket: Duplex;
  /** What nobody has asked for yet. */
  readonly heard: string[] = [];
  #news: () => void = () => undefined;

  constructor(socket: Duplex) {
    this.socket = socket;
    void this.#listen().catch(() => undefined);
  }

  async #listen(): Promise<void> {
    for await (const { hello } of unmasked(this.socket)) {
      this.heard.push(hello.tools.map(({ name }) => name).join());
      this.#news();
    }
  }

  async hello(): Promise<string> {
    while (this.heard.length === 0) await new Promise<void>((resolve) => (this.#news = resolve));
    return this.heard.shift() ?? "";
  }

  say(message: object): void {
    const data = Buffer.from(JSON.stringify(message));
    this.socket.write(Buffer.concat([Buffer.from([0x81, data.length]), data]));
  }

  ready(): void {
    this.say({ ready: { sandbox_id: "s" } });
  }

  refuse(code: string): void {
    this.say({ problem: { code, message: "refused" } });
  }
}

/** What a client says, to its goodbye. */
async function* unmasked(socket: Duplex): AsyncGenerator<{ hello: Pick<Offer, "tools"> }, void, undefined> {
  let rest = Buffer.alloc(0);
  for await (const data of socket as AsyncIterable<Buffer>) {
    rest = Buffer.concat([rest, data]);
    for (;;) {
      const short = (rest[1] ?? 0) & 0x7f;
      const start = short === 126 ? 8 : 6;
      const size = short === 126 && rest.length >= 4 ? rest.readUInt16BE(2) : short;
      if (rest.length < start || rest.length < start + size) break;
      const mask = rest.subarray(start - 4, start);
      const text = rest.subarray(start, start + size).map((byte, at) => byte ^ (mask[at % 4] ?? 0));
      if (rest[0] === 0x88) return void socket.end();
      rest = rest.subarray(start + size);
      yield JSON.parse(Buffer.from(text).toString()) as { hello: Pick<Offer, "tools"> };
    }
  }
}

/** A server that lets a connection in when the test asks for the next; `waits` is done when one is there. */
async function byHand(
  work: (transport: Transport, next: () => Promise<Heard>, waits: () => Promise<void>) => Promise<void>,
): Promise<void> {
  const server = http.createServer();
  const waiting: [http.IncomingMessage, Duplex][] = [];
  const sockets: Duplex[] = [];
  server.on("upgrade", (request, socket) => {
    socket.on("error", () => undefined);
    waiting.push([request, socket]);
    sockets.push(socket);
    server.emit("waits");
  });
  const waits = async (): Promise<void> => {
    if (waiting.length === 0) await once(server, "waits");
  };
  const next = async (): Promise<Heard> => {
    await waits();
    const [request, socket] = waiting.shift() ?? assert.fail();
    const key = request.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    const accept = createHash("sha1").update(key).digest("base64");
    socket.write(
      `HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: ${accept}\r\n\r\n`,
    );
    return new Heard(socket);
  };
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const transport = new Transport({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` });
  try {
    await work(transport, next, waits);
  } finally {
    transport.close();
    // They are the server's no longer.
    for (const socket of sockets) socket.destroy();
    server.close();
  }
}

function offering(name: string): Offer {
  const tools = [{ name, description: "", inputSchema: "{}" }];
  return { tools, decidesConnections: false, handlesRequests: false, secrets: [] };
}

const answer = (): Promise<never> => Promise.reject(new Error("nobody asks"));

async function begun(transport: Transport, next: () => Promise<Heard>): Promise<[Conversation, Heard]> {
  const beginning = Conversation.begin(transport, "s", offering("first"), answer);
  const heard = await next();
  assert.equal(await heard.hello(), "first");
  heard.ready();
  return [await beginning, heard];
}

test("what is refused anew takes nothing away, also over a new connection", { timeout: 60_000 }, async () => {
  for (const code of ["rate-limited", "callback-exists", "invalid-name"])
    await byHand(async (transport, next) => {
      const [conversation, before] = await begun(transport, next);
      before.socket.destroy();
      const replacing = failureOf(conversation.replace(offering("second")));
      const refusing = await next();
      assert.equal(await refusing.hello(), "first");
      assert.equal(await refusing.hello(), "second");
      refusing.ready();
      refusing.refuse(code);
      assert.equal((await replacing).code, code);
      const after = await next();
      assert.equal(await after.hello(), "first");
      after.ready();
      // The twin: what is taken.
      const taken = conversation.replace(offering("third"));
      assert.equal(await after.hello(), "third");
      after.ready();
      await taken;
      await conversation.close();
    });
});

test("what the server holds for the connection that was lost refuses nothing that is new", { timeout: 60_000 }, async () => {
  await byHand(async (transport, next) => {
    const [conversation, before] = await begun(transport, next);
    before.socket.destroy();
    const replacing = conversation.replace(offering("second"));
    for (const gone of [false, false, true]) {
      const again = await next();
      assert.equal(await again.hello(), "first");
      assert.equal(await again.hello(), "second");
      if (gone) again.ready();
      if (gone) again.ready();
      else again.refuse("callback-exists");
    }
    await replacing;
    await conversation.close();
  });
});

test("an answer to what was said before is none to what is said now", { timeout: 60_000 }, async () => {
  await byHand(async (transport, next) => {
    const [conversation, before] = await begun(transport, next);
    before.socket.destroy();
    const again = await next();
    assert.equal(await again.hello(), "first");
    const replacing = failureOf(conversation.replace(offering("second")));
    assert.equal(await again.hello(), "second");
    again.ready();
    again.refuse("callback-exists");
    assert.equal((await replacing).code, "callback-exists");
    const after = await next();
    assert.equal(await after.hello(), "first");
    after.ready();
    await conversation.close();
  });
});

test("what is offered while the connection is lost is offered over the next one", { timeout: 60_000 }, async () => {
  await byHand(async (transport, next) => {
    const [conversation, before] = await begun(transport, next);
    const send = WebSocketConnection.prototype.send;
    // Gone, and nobody has read of it yet.
    WebSocketConnection.prototype.send = async () => await Promise.reject(new Error("gone"));
    const replacing = conversation.replace(offering("second"));
    WebSocketConnection.prototype.send = send;
    before.socket.destroy();
    const after = await next();
    assert.equal(await after.hello(), "first");
    assert.equal(await after.hello(), "second");
    after.ready();
    after.ready();
    await replacing;
    await conversation.close();
  });
});

test("whoever offers when all is over is told why", { timeout: 60_000 }, async () => {
  await byHand(async (transport, next) => {
    const [conversation, heard] = await begun(transport, next);
    heard.refuse("sandbox-not-found");
    await new Promise((resolve) => heard.socket.once("close", resolve));
    for (const name of ["second", "third"])
      assert.equal((await failureOf(conversation.replace(offering(name)))).code, "sandbox-not-found");
    await conversation.close();
  });
});

test("who is closed while it connects again connects for nothing", { timeout: 60_000 }, async () => {
  await byHand(async (transport, next, waits) => {
    const [conversation, before] = await begun(transport, next);
    before.socket.destroy();
    await waits();
    const closing = conversation.close();
    const late = await next();
    await closing;
    assert.deepEqual(late.heard, []);
  });
});

test("who offers when all is over begins anew, with what was offered before", { timeout: 60_000 }, async () => {
  await byHand(async (transport, next) => {
    const callbacks = new Callbacks(transport, "s");
    const run = (): string => "done";
    const beginning = callbacks.offer({ tools: { first: { run } } });
    const before = await next();
    assert.equal(await before.hello(), "first");
    before.ready();
    await beginning;
    before.refuse("sandbox-not-found");
    await new Promise((resolve) => before.socket.once("close", resolve));
    for (const code of ["rate-limited", undefined]) {
      const offering = callbacks.offer({ tools: { second: { run } } }).catch((error: BelljarError) => error.code);
      const after = await next();
      assert.equal(await after.hello(), "first,second");
      if (code === undefined) after.ready();
      else after.refuse(code);
      assert.equal(await offering, code);
    }
    await callbacks.close();
  });
});
