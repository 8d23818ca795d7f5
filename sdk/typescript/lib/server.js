// A client of `ctxbench mcp`: JSON-RPC, one message a line, over the pipes of a child process.

import { Daemon } from "./command.js";
import { CommandError, ToolError } from "./errors.js";

/** Milliseconds that a server may take to end. */
const PATIENCE = 120_000;

/** A running `ctxbench mcp`. For one call at a time; after any error but ToolError, the only valid call is `close`. */
export class Server {
  #daemon;
  #number = 0;
  #isClosed = false;

  constructor(daemon) {
    this.#daemon = daemon;
  }

  /** Starts a server, and waits until it answers. */
  static async start(...words) {
    const server = new Server(new Daemon(["mcp", ...words]));
    try {
      const clientInfo = { name: "ctxbench-node", version: "1" };
      await server.#request("initialize", { protocolVersion: "2025-06-18", capabilities: {}, clientInfo });
    } catch (error) {
      await server.close().catch(() => {});
      throw error;
    }
    server.#daemon.send(JSON.stringify({ jsonrpc: "2.0", method: "notifications/initialized" }));
    return server;
  }

  /** Calls a tool, and returns the text of its answer. */
  async call(tool, args) {
    const result = await this.#request("tools/call", { name: tool, arguments: args });
    const text = result.content.flatMap((part) => (part.type === "text" ? [part.text] : [])).join("\n");
    if (result.isError) throw new ToolError(text);
    return text;
  }

  async #request(method, params) {
    const id = ++this.#number;
    this.#daemon.send(JSON.stringify({ jsonrpc: "2.0", id, method, params }));
    const line = await this.#daemon.line();
    if (line === null) {
      await this.#daemon.ended;
      throw this.#daemon.failure();
    }
    const answer = JSON.parse(line);
    if (answer.error) throw new ToolError(answer.error.message);
    if (answer.id !== id) throw new CommandError(this.#daemon.command, null, `unexpected answer: ${line.slice(0, 400)}`);
    return answer.result;
  }

  /** Ends the server, and waits until its mount is flushed and gone. */
  async close() {
    if (this.#isClosed) return;
    this.#isClosed = true;
    const code = await this.#daemon.end(PATIENCE);
    const failure = this.#daemon.failure();
    this.#daemon.release();
    if (code !== 0) throw failure;
  }
}
