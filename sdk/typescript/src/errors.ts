// From what went wrong to the class that says so.
import { CLASSES } from "./generated/classes.js";
import { InterruptedError, ServerUnreachableError, TimedOutError } from "./generated/codes.js";
import { BelljarError, type Problem } from "./problem.js";

export * from "./generated/codes.js";
export { BelljarError, type PolicyDecision, type Problem } from "./problem.js";

/** The caller's `AbortSignal` ended the operation. Its reason is the `cause`. */
export class AbortedError extends InterruptedError {
  /** As everywhere on the platform, so that generic code knows it. */
  override readonly name: string = "AbortError";
}

/** The connection broke off within an answer. */
export class ConnectionLostError extends ServerUnreachableError {
  override readonly name: string = "ConnectionLostError";
}

/** The error for a problem: of its code's class. */
export function errorOf(problem: Problem): BelljarError {
  const Class = CLASSES.get(problem.code) ?? BelljarError;
  return new Class(problem);
}

/** An argument that cannot be used, named. */
export function invalid(message: string, remedy: string): BelljarError {
  return errorOf({ code: "invalid-argument", message, remedy });
}

/** What a signal that fired means: out of time, or no longer wanted. */
export function abortedBy(signal: AbortSignal): BelljarError {
  const reason: unknown = signal.reason;
  if (reason instanceof BelljarError) return reason;
  if (reason instanceof Error && reason.name === "TimeoutError") {
    return new TimedOutError({
      code: "timed-out",
      message: "the operation took longer than its signal allows",
      cause: reason,
    });
  }
  return new AbortedError({ code: "interrupted", message: "the operation was aborted", cause: reason });
}

/** Fails at once where the signal has fired already. */
export function refuseAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw abortedBy(signal);
}

/** What is said where a connection ends before its time. */
export function lostConnection(cause: unknown): ConnectionLostError {
  return new ConnectionLostError({
    code: "server-unreachable",
    message: "the connection to the server broke off",
    cause,
    remedy: "ask again; whether the request was carried out is not known",
  });
}

/** Waits no longer than the signal allows. What was begun goes on. */
export async function abortable<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return await work;
  return await new Promise<T>((resolve, reject) => {
    const give = (): void => reject(abortedBy(signal));
    if (signal.aborted) give();
    signal.addEventListener("abort", give, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", give));
  });
}
