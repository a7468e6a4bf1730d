// Server-sent events and lines of JSON, read as they come. Whoever stops reading ends the request.
import type { IncomingMessage } from "node:http";
import { abortedBy, errorOf, lostConnection } from "./errors.js";
import { fromWire } from "./wire.js";

/** One event: its name, its place, and its data. */
export interface ServerEvent<T> {
  readonly name: string;
  readonly id: string | undefined;
  readonly data: T;
}

/** The events of an answer. A problem within them is thrown, and so is the loss of the connection. */
export async function* serverEvents<T>(
  answer: IncomingMessage,
  signal: AbortSignal | undefined,
): AsyncGenerator<ServerEvent<T>, void, undefined> {
  let name = "message";
  let id: string | undefined;
  let data = "";
  for await (const line of lines(answer, signal)) {
    if (line === "") {
      if (data !== "") {
        const value: unknown = JSON.parse(data);
        if (name === "problem") throw errorOf(fromWire(value));
        yield { name, id, data: fromWire<T>(value) };
      }
      [name, data] = ["message", ""];
      continue;
    }
    const colon = line.indexOf(":");
    if (colon === 0) continue;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") name = value;
    else if (field === "id") id = value;
    else if (field === "data") data = data === "" ? value : `${data}\n${value}`;
  }
}

/** A JSON value for each line of an answer. */
export async function* jsonLines<T>(
  answer: IncomingMessage,
  signal: AbortSignal | undefined,
): AsyncGenerator<T, void, undefined> {
  for await (const line of lines(answer, signal)) {
    if (line !== "") yield fromWire<T>(JSON.parse(line));
  }
}

async function* lines(
  answer: IncomingMessage,
  signal: AbortSignal | undefined,
): AsyncGenerator<string, void, undefined> {
  answer.setEncoding("utf8");
  // The pieces of a line that has not ended; joined once, so that a long line costs its length and not its square.
  let open: string[] = [];
  const pieces = (answer as AsyncIterable<string>)[Symbol.asyncIterator]();
  try {
    for (;;) {
      const next = await pieces.next().catch((error: unknown) => {
        throw signal?.aborted ? abortedBy(signal) : lostConnection(error);
      });
      if (next.done) break;
      const parts = next.value.split("\n");
      for (let index = 0; index < parts.length - 1; index += 1) {
        open.push(parts[index] ?? "");
        const line = open.join("");
        open = [];
        yield line.endsWith("\r") ? line.slice(0, -1) : line;
      }
      open.push(parts.at(-1) ?? "");
    }
  } finally {
    answer.destroy();
  }
}
