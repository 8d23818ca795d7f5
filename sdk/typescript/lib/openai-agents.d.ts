import type { AgentInputItem, Session } from "@openai/agents";

/**
 * A conversation as a file of JSON lines, `SESSION_ID.jsonl`, one item a line. One process at a time may use a session.
 * An item that a killed process has not completely written is not part of it.
 *
 * A session is where the SDK keeps a conversation. The agent's tools need no adapter: `MCPServerStdio` runs
 * `ctxbench mcp agent-memory`, which has `remember` and `recall`.
 */
export class MountSession implements Session {
  /** Names a session in a mount, or in a directory of it. Its file is created by the first items. */
  constructor(sessionId: string, directory: string);
  getSessionId(): Promise<string>;
  /**
   * The items in their order, or the last `limit` of them.
   * @throws {Error} if a line of the file is not JSON
   */
  getItems(limit?: number): Promise<AgentInputItem[]>;
  /**
   * Adds items at the end.
   * @throws {TypeError} if an item has a part that JSON cannot hold; none was added
   */
  addItems(items: AgentInputItem[]): Promise<void>;
  /** Removes the last item, and returns it. */
  popItem(): Promise<AgentInputItem | undefined>;
  /** Removes all items. */
  clearSession(): Promise<void>;
}
