// What this process answers for a sandbox, over one conversation.
import { type Answer, type Call, Conversation } from "./conversation.js";
import { invalid } from "./errors.js";
import { type Tools, callTool, declarations } from "./tools.js";
import type { Transport } from "./transport.js";

export class Callbacks {
  readonly #transport: Transport;
  readonly #sandboxId: string;
  #tools: Tools = {};
  #conversation: Promise<Conversation> | undefined;

  constructor(transport: Transport, sandboxId: string) {
    this.#transport = transport;
    this.#sandboxId = sandboxId;
  }

  /** Offers these too. Done when the server asks here. */
  async offer(more: Tools): Promise<void> {
    const before = this.#tools;
    // In place before the server knows of them, so that no call comes too early.
    this.#tools = { ...this.#tools, ...more };
    const offer = { tools: declarations(this.#tools) };
    const running = this.#conversation;
    try {
      if (running !== undefined) return await (await running).replace(offer);
      const answer = async (call: Call, signal: AbortSignal): Promise<Answer> => await this.#answer(call, signal);
      this.#conversation = Conversation.begin(this.#transport, this.#sandboxId, offer, answer);
      await this.#conversation;
    } catch (error) {
      this.#tools = before;
      this.#conversation = running;
      throw error;
    }
  }

  async close(): Promise<void> {
    const running = this.#conversation;
    this.#conversation = undefined;
    await (await running?.catch(() => undefined))?.close();
  }

  async #answer(call: Call, signal: AbortSignal): Promise<Answer> {
    if (call.tool) {
      const context = { signal, sandboxId: call.sandboxId, processId: call.tool.processId ?? undefined };
      return { toolResult: { json: await callTool(this.#tools, call.tool.name, call.tool.arguments, context) } };
    }
    throw invalid("nobody here answers that", "ask what was offered");
  }
}
