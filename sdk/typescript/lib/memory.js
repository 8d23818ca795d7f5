// An agent's memory: notes that `recall` finds within a budget of tokens.

import { mkdirSync, realpathSync } from "node:fs";
import { homedir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";

import { atEnd } from "./command.js";
import { ToolError } from "./errors.js";
import { Server } from "./server.js";

/** How the answer of `remember` begins; the note's path follows. */
const REMEMBERED = "Remembered in ";

/** The server of one store in this process. A store is mounted once, so it serves one agent after another. */
class Store {
  #directory;
  #server = null;
  #agent = "";
  /** The end of the last call: calls come one after the other. */
  #last = Promise.resolve();

  constructor(directory) {
    this.#directory = directory;
  }

  #next(action) {
    const result = this.#last.then(action);
    this.#last = result.catch(() => {});
    return result;
  }

  async #serve(agent) {
    if (this.#server === null || this.#agent !== agent) {
      await this.#close();
      this.#server = await Server.start("agent-memory", this.#directory, `--agent-id=${agent}`);
      this.#agent = agent;
      atEnd(this.close);
    }
    return this.#server;
  }

  async #close() {
    const server = this.#server;
    this.#server = null;
    await server?.close();
  }

  /** Starts the server of an agent, unless it runs. */
  serve(agent) {
    return this.#next(() => this.#serve(agent));
  }

  call(agent, tool, args) {
    return this.#next(async () => {
      const server = await this.#serve(agent);
      try {
        return await server.call(tool, args);
      } catch (error) {
        if (!(error instanceof ToolError)) {
          this.#server = null;
          await server.close().catch(() => {});
        }
        throw error;
      }
    });
  }

  close = () => this.#next(() => this.#close());
}

const stores = new Map();

function storeOf(directory) {
  if (!stores.has(directory)) stores.set(directory, new Store(directory));
  return stores.get(directory);
}

/** A path without links in its folder; the directory itself may be missing. */
function canonical(path) {
  try {
    return realpathSync(path);
  } catch {
    const absolute = resolve(path);
    const folder = dirname(absolute);
    return folder === absolute ? absolute : join(canonical(folder), basename(absolute));
  }
}

function defaultStore() {
  const data = process.env.XDG_DATA_HOME || join(homedir(), ".local", "share");
  const directory = join(data, "ctxbench", "memory");
  // Notes are for this user alone.
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  return directory;
}

/** The memory of one agent: its private notes, and the shared notes of all agents of the store. */
export class AgentMemory {
  #directory;

  constructor(directory, agent) {
    this.#directory = directory;
    this.agent = agent;
  }

  async remember(text, { title, importance, tags = [], namespace, ttl } = {}) {
    if (!Array.isArray(tags)) throw new TypeError(`tags must be an array of words, not ${JSON.stringify(tags)}`);
    const time = ttl === undefined || ttl === null ? undefined : String(ttl);
    const given = { text, title, importance, tags, namespace, ttl: time };
    const args = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined && value !== null));
    const answer = await storeOf(this.#directory).call(this.agent, "remember", args);
    return "/" + answer.slice(REMEMBERED.length);
  }

  async recall(query, { maxTokens = 2000, strategy = "balanced" } = {}) {
    const args = { question: query, max_tokens: maxTokens, strategy };
    return await storeOf(this.#directory).call(this.agent, "recall", args);
  }
}

/** A store with the memories of several agents, in one directory. */
export class Memory {
  constructor(store) {
    this.directory = canonical(store ?? defaultStore());
  }

  async agentMemory(agent) {
    await storeOf(this.directory).serve(agent);
    return new AgentMemory(this.directory, agent);
  }

  async close() {
    await storeOf(this.directory).close();
  }

  async [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
    await this.close();
  }
}

/** Opens the memory of an agent in a store. */
export function agentMemory(agent, { store } = {}) {
  return new Memory(store).agentMemory(agent);
}
