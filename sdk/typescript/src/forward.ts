// A port of a sandbox as a port of this machine.
import { type AddressInfo, type Server, type Socket, createServer } from "node:net";
import { pipeline } from "node:stream/promises";
import { invalid, refuseAborted } from "./errors.js";
import { type GrpcCall, bytesField, bytesOf, framed, messagesOf, numberField } from "./grpc.js";
import type { Transport } from "./transport.js";

const METHOD = "/belljar.v1.Ports/ForwardPort";
const HOST = "127.0.0.1";

export interface ForwardOptions {
  /** Absent or 0: any that is free. */
  readonly localPort?: number | undefined;
  /** Closes it when it fires. */
  readonly signal?: AbortSignal | undefined;
}

/** Listens on loopback and joins each connection to the port inside, until it or the client is closed. */
export class Forward implements AsyncDisposable {
  readonly #transport: Transport;
  readonly #sandboxId: string;
  readonly #inside: number;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #calls = new Set<GrpcCall>();
  #port = 0;
  readonly host = HOST;

  private constructor(transport: Transport, sandboxId: string, inside: number) {
    this.#transport = transport;
    this.#sandboxId = sandboxId;
    this.#inside = inside;
    this.#server = createServer({ allowHalfOpen: true }, (socket) => void this.#serve(socket));
  }

  /** @internal */
  static async open(
    transport: Transport,
    sandboxId: string,
    port: number,
    options: ForwardOptions = {},
  ): Promise<Forward> {
    if (!Number.isInteger(port) || port < 1 || port > 65535) throw invalid(`\`${port}\` is no port`, "give 1 to 65535");
    const { localPort = 0, signal } = options;
    refuseAborted(signal);
    const forward = new Forward(transport, sandboxId, port);
    await new Promise<void>((resolve, reject) => {
      forward.#server.once("error", reject);
      forward.#server.listen(localPort, HOST, resolve);
    });
    forward.#port = (forward.#server.address() as AddressInfo).port;
    const close = (): void => void forward.close();
    signal?.addEventListener("abort", close, { once: true });
    const release = transport.hold({ destroy: close });
    forward.#server.once("close", () => {
      signal?.removeEventListener("abort", close);
      release();
    });
    if (signal?.aborted) await forward.close();
    refuseAborted(signal);
    return forward;
  }

  /** Where it listens, at `host`. */
  get port(): number {
    return this.#port;
  }

  /** Listens no longer, and ends the connections that are open. */
  async close(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    this.#sockets.forEach((socket) => socket.destroy());
    this.#calls.forEach(({ session }) => session.destroy());
    await closed;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #serve(socket: Socket): Promise<void> {
    this.#sockets.add(socket);
    socket.on("error", () => undefined);
    socket.setNoDelay();
    try {
      const call = await this.#transport.call(METHOD);
      this.#calls.add(call);
      try {
        if (socket.destroyed) return;
        await this.#join(socket, call);
      } finally {
        this.#calls.delete(call);
        call.session.destroy();
      }
    } catch {
      // What breaks on one side ends the other; whoever connected sees it end.
    } finally {
      socket.destroy();
      this.#sockets.delete(socket);
    }
  }

  async #join(socket: Socket, { stream }: GrpcCall): Promise<void> {
    const gone = new Promise<void>((resolve) => stream.once("close", resolve));
    const inwards = this.#inwards(socket, stream).catch(() => undefined);
    await pipeline(stream, dataOf, socket);
    // Inside has said all; what is still said to it goes on until that ends too.
    await Promise.race([inwards, gone]);
  }

  async #inwards(socket: Socket, stream: GrpcCall["stream"]): Promise<void> {
    const write = async (message: Buffer): Promise<void> =>
      await new Promise((resolve, reject) => stream.write(message, (error) => (error ? reject(error) : resolve())));
    await write(framed(bytesField(1, this.#sandboxId), numberField(2, this.#inside)));
    // What is read here ends; the socket itself stays for what comes back.
    for await (const data of socket.iterator({ destroyOnReturn: false }))
      await write(framed(bytesField(3, data as Buffer)));
    stream.end();
  }
}

async function* dataOf(stream: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void, undefined> {
  for await (const message of messagesOf(stream)) {
    const data = bytesOf(message, 1);
    // The first message says that the connection stands, and has none.
    if (data.length > 0) yield data;
  }
}
