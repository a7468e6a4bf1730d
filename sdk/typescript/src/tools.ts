// Tools: functions of this process that programs in a sandbox may call, by name, with arguments that fit a schema.
import { invalid } from "./errors.js";

/** What a tool is told beside its arguments. */
export interface ToolContext {
  /** Fires when the caller no longer waits. */
  readonly signal: AbortSignal;
  readonly sandboxId: string;
  /** The process inside that calls, where it is known. */
  readonly processId: string | undefined;
}

/** A function with what others have to know of it. */
export interface Tool<Arguments = never> {
  readonly description?: string | undefined;
  /** JSON Schema of the arguments, of type `object`. They are checked before the function is called. */
  readonly schema?: object | undefined;
  /** Its result, or what its promise ends with, goes inside as JSON. What it throws is the caller's error. */
  run(args: Arguments, context: ToolContext): unknown;
}

/** By the names under which they are called. */
export type Tools = Readonly<Record<string, Tool>>;

/** A tool; for the type of its arguments. */
export function tool<Arguments>(definition: Tool<Arguments>): Tool<Arguments> {
  return definition;
}

export function declarations(tools: Tools): { name: string; description: string; inputSchema: string }[] {
  return Object.entries(tools).map(([name, { description, schema }]) => ({
    name,
    description: description ?? "",
    inputSchema: schema === undefined ? "" : JSON.stringify(schema),
  }));
}

export async function callTool(tools: Tools, name: string, args: string, context: ToolContext): Promise<string> {
  const tool = Object.hasOwn(tools, name) ? tools[name] : undefined;
  if (tool === undefined) throw invalid(`there is no tool \`${name}\``, "call one that is offered");
  const result: unknown = await tool.run(JSON.parse(args) as never, context);
  const json: string | undefined = JSON.stringify(result ?? null);
  if (json === undefined) throw new TypeError(`the result of tool \`${name}\` has no JSON form`);
  return json;
}
