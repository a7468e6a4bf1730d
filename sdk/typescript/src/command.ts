// What to run, as a caller says it and as the wire has it.
import { constants } from "node:os";
import { invalid } from "./errors.js";
import type * as api from "./generated/api.js";
import { base64 } from "./wire.js";

/** A line for the shell, or a program with its arguments. */
export type Words = string | readonly string[];

/** How a command runs. Times are in seconds. */
export interface CommandOptions {
  /** Added to, and winning over, the sandbox's own. */
  readonly env?: Readonly<Record<string, string>> | undefined;
  readonly cwd?: string | undefined;
  /** `user`, `root`, or `UID[:GID]`. */
  readonly user?: string | undefined;
  /** Absent: the sandbox's `timeout`, else 60. 0: none. */
  readonly timeout?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

export interface RunOptions extends CommandOptions {
  /** Standard input as a whole. */
  readonly stdin?: string | Uint8Array | undefined;
  /** Bytes per channel in the result. Absent: 1 MiB, at most 8 MiB. All of it is in the log. */
  readonly outputLimit?: number | undefined;
  /** List the files that the command left in `/output`. */
  readonly artifacts?: boolean | undefined;
}

/** Rows and columns of a terminal. */
export interface TerminalSize {
  readonly rows: number;
  readonly columns: number;
}

export interface StartOptions extends CommandOptions {
  /** Bytes for standard input as a whole, or `true` to write it later. */
  readonly stdin?: boolean | string | Uint8Array | undefined;
  /** Makes a terminal: `true` for 24 × 80. */
  readonly pty?: boolean | TerminalSize | undefined;
}

type Settings = StartOptions & Pick<RunOptions, "outputLimit">;

export function commandOf(words: Words, options: Settings): api.Command {
  return { ...(typeof words === "string" ? { shell: words } : { argv: [...words] }), ...settings(options) };
}

export function codeOf(code: string, language: string, options: Settings): api.Command {
  return { code, language, ...settings(options) };
}

function settings(options: Settings): api.Command {
  const { stdin, pty } = options;
  return {
    environment: options.env,
    workingDirectory: options.cwd,
    user: options.user,
    timeoutSecs: options.timeout,
    outputLimit: options.outputLimit,
    stdin: stdin === true || (pty !== undefined && pty !== false && stdin === undefined) ? true : undefined,
    input: typeof stdin === "string" || stdin instanceof Uint8Array ? base64(stdin) : undefined,
    terminal: pty === true ? { rows: 24, columns: 80 } : pty === false ? undefined : pty,
  };
}

/** The number of a signal, which may be given by its name. */
export function signalNumber(signal: NodeJS.Signals | number): number {
  if (typeof signal === "number") return signal;
  const number = constants.signals[signal];
  if (number === undefined)
    throw invalid(`there is no signal \`${String(signal)}\``, "write it as `SIGTERM`, or as a number");
  return number;
}
