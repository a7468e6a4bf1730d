// The WebSocket client: against the real server, and against one that misbehaves.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import http from "node:http";
import type { AddressInfo } from "node:net";
import type { Duplex } from "node:stream";
import { test } from "node:test";
import { ConnectionLostError, ProcessNotFoundError } from "belljar";
import { Transport } from "../src/transport.js";
import { type Message, WebSocketConnection } from "../src/websocket.js";
import { failureOf, useServer } from "./server.js";

const at = useServer();

test("a process over a WebSocket of the real server, with messages of every length", async () => {
  await using sandbox = await at.client.sandboxes.create();
  const transport = new Transport({ url: at.server.socket });
  const process = await sandbox.start(["cat"], { stdin: true });
  const connection = await WebSocketConnection.connect(transport, `/v1/processes/${process.id}/attach`);
  const sent = [1, 125, 126, 65_535, 65_536, 300_000].map((size) => Buffer.alloc(size, size % 251));
  const writing = (async () => {
    for (const piece of sent) await connection.send(piece);
    await connection.send(JSON.stringify({ close: true }));
  })();
  const got: Buffer[] = [];
  let ended = "";
  for await (const message of connection) {
    if (typeof message === "string") ended = message;
    else got.push(Buffer.from(message).subarray(9));
  }
  await writing;
  assert.ok(Buffer.concat(got).equals(Buffer.concat(sent)));
  assert.match(ended, /"exit_code":0/);
  const nobody = WebSocketConnection.connect(transport, "/v1/processes/pnope/attach");
  assert.ok((await failureOf(nobody)) instanceof ProcessNotFoundError);
  transport.close();
});

/** A server that upgrades and then says exactly these bytes. */
async function against(speak: (socket: Duplex) => void, accept?: string): Promise<Message[]> {
  const server = http.createServer();
  const ended: Promise<unknown>[] = [];
  server.on("upgrade", (request, socket) => {
    ended.push(new Promise((resolve) => socket.once("end", resolve)));
    const key = request.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    const answer = accept ?? createHash("sha1").update(key).digest("base64");
    socket.write(
      `HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: ${answer}\r\n\r\n`,
    );
    speak(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const transport = new Transport({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` });
  try {
    const connection = await WebSocketConnection.connect(transport, "/");
    const messages: Message[] = [];
    for await (const message of connection) messages.push(message);
    // Only then has the server heard all that was said.
    await Promise.all(ended);
    return messages;
  } finally {
    transport.close();
    server.closeAllConnections();
    server.close();
  }
}

test("parts are joined, pings within them answered, and the end is orderly", async () => {
  const bytes = Buffer.from([
    0x01, 2, 0x67, 0x72, 0x89, 1, 0x21, 0x00, 2, 0xc3, 0xbc, 0x80, 3, 0xc3, 0x9f, 0x65, 0x88, 2, 0x03, 0xe8,
  ]);
  let heard = Buffer.alloc(0);
  const messages = await against((socket) => {
    socket.on("data", (data: Buffer) => (heard = Buffer.concat([heard, data])));
    // Byte by byte: no frame may depend on how the network cuts it.
    for (const byte of bytes) socket.write(Buffer.from([byte]));
  });
  assert.deepEqual(messages, ["grüße"]);
  assert.equal(heard[0], 0x8a, "the ping was answered first");
});

test("what breaks the protocol is a lost connection", async () => {
  const cases: Record<string, number[]> = {
    "a masked frame": [0x81, 0x81, 0, 0, 0, 0, 0x61],
    "reserved bits": [0xc1, 0x01, 0x61],
    "a part without a message": [0x80, 0x01, 0x61],
    "a message within a message": [0x01, 0x01, 0x61, 0x81, 0x01, 0x61],
    "a frame that is too large": [0x82, 127, 0, 0, 1, 0, 0, 0, 0, 0],
    "a long ping": [0x89, 126, 0x01, 0x00],
    "half a frame": [0x81, 0x05, 0x61],
    "no goodbye": [0x81, 0x01, 0x61],
  };
  for (const [name, bytes] of Object.entries(cases)) {
    const error = await failureOf(against((socket) => socket.end(Buffer.from(bytes))));
    assert.ok(error instanceof ConnectionLostError, `${name}: ${error}`);
  }
  assert.ok((await failureOf(against(() => undefined, "wrong"))) instanceof ConnectionLostError);
});
