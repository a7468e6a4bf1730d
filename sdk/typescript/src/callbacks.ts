// What this process answers for a sandbox: tools, decisions about the network, secrets; over one conversation.
import { type Answer, type Call, Conversation, type Offer } from "./conversation.js";
import { type ConnectionPolicy, Decider } from "./decide.js";
import { invalid } from "./errors.js";
import { type Tools, callTool, declarations } from "./tools.js";
import type { Transport } from "./transport.js";

/** Secrets by the names that credentials of a policy give them (`source: callback`); asked for with each request. */
export type Secrets = Readonly<Record<string, string | (() => string | Promise<string>)>>;

export class Callbacks {
  readonly #transport: Transport;
  readonly #sandboxId: string;
  #tools: Tools = {};
  #decider: Decider | undefined;
  #secrets: Secrets = {};
  #conversation: Promise<Conversation> | undefined;

  constructor(transport: Transport, sandboxId: string) {
    this.#transport = transport;
    this.#sandboxId = sandboxId;
  }

  /** Offers these too. Done when the server asks here. */
  async offer(more: {
    readonly tools?: Tools | undefined;
    readonly policy?: ConnectionPolicy | undefined;
    readonly secrets?: Secrets | undefined;
  }): Promise<void> {
    const before = { tools: this.#tools, decider: this.#decider, secrets: this.#secrets };
    // In place before the server knows of them, so that no call comes too early.
    this.#tools = { ...this.#tools, ...more.tools };
    this.#secrets = { ...this.#secrets, ...more.secrets };
    if (more.policy !== undefined) this.#decider = new Decider(more.policy);
    const decides = this.#decider !== undefined;
    const offer = {
      tools: declarations(this.#tools),
      decidesConnections: decides,
      handlesRequests: decides,
      secrets: Object.keys(this.#secrets),
    };
    try {
      if (this.#conversation === undefined) await this.#begin(offer);
      else await (await this.#conversation).replace(offer);
    } catch (error) {
      [this.#tools, this.#decider, this.#secrets] = [before.tools, before.decider, before.secrets];
      throw error;
    }
  }

  async #begin(offer: Offer): Promise<void> {
    const answer = async (call: Call, signal: AbortSignal): Promise<Answer> => await this.#answer(call, signal);
    const beginning = Conversation.begin(this.#transport, this.#sandboxId, offer, answer);
    this.#conversation = beginning;
    // Whoever offers when it is over begins anew.
    const forget = (): void => {
      if (this.#conversation === beginning) this.#conversation = undefined;
    };
    try {
      void (await beginning).ended.then(forget);
    } catch (error) {
      forget();
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
    if (call.connection && this.#decider) return await this.#decider.connection(call.connection);
    if (call.request && this.#decider) return await this.#decider.request(call.request);
    const secret = call.secret ? this.#secrets[call.secret.name] : undefined;
    if (secret !== undefined) return { secret: { value: typeof secret === "string" ? secret : await secret() } };
    throw invalid("nobody here answers that", "ask what was offered");
  }
}
