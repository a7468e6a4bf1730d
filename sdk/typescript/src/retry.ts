// When asking again is right, and how long to keep at it.
import { setTimeout as sleep } from "node:timers/promises";
import { BelljarError, ConnectionLostError, ServerStoppingError, ServerUnreachableError, abortedBy } from "./errors.js";

/** A server that was restarted is back by then; it first finishes what was left half done. */
const PATIENCE_MS = 30_000;
const FIRST_PAUSE_MS = 25;
const LONGEST_PAUSE_MS = 1_000;

/** Whether the server may be there again soon. */
export function isLoss(error: unknown): boolean {
  return error instanceof ServerUnreachableError || error instanceof ServerStoppingError;
}

/** Whether the request may have been carried out although no answer came. */
export function mayHaveHappened(error: unknown): boolean {
  return error instanceof ConnectionLostError;
}

/** Pauses that grow until the patience is used up; progress starts it anew. */
export class Patience {
  #since: number | undefined;
  #connected: number | undefined;
  #pause = FIRST_PAUSE_MS;

  /** Something came. */
  progress(): void {
    this.#since = undefined;
    this.#pause = FIRST_PAUSE_MS;
  }

  /** There is a connection; one that lasts is progress too, even if nothing comes. */
  connected(): void {
    this.#connected = Date.now();
  }

  /** Waits before the next try, or fails with what went wrong. */
  async wait(error: unknown, signal: AbortSignal | undefined): Promise<void> {
    if (this.#connected !== undefined && Date.now() - this.#connected > LONGEST_PAUSE_MS) this.progress();
    this.#connected = undefined;
    this.#since ??= Date.now();
    if (Date.now() - this.#since > PATIENCE_MS) throw error;
    const pause = this.#pause;
    this.#pause = Math.min(pause * 2, LONGEST_PAUSE_MS);
    try {
      await sleep(pause, undefined, signal === undefined ? {} : { signal });
    } catch (interrupted) {
      if (signal?.aborted) throw abortedBy(signal);
      throw interrupted instanceof BelljarError ? interrupted : error;
    }
  }
}
