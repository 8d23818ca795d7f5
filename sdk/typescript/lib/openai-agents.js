// A directory of a mount as the sessions of the OpenAI Agents SDK. Its files are those of the Python SDK's MountSession.

import { constants } from "node:fs";
import { open } from "node:fs/promises";
import { join, resolve } from "node:path";

import { checkJson } from "./json.js";
import { encode } from "./names.js";

const NEWLINE = 10;

/** For each file, the last call on it in this process: Node has no file locks. */
const running = new Map();

export class MountSession {
  #id;
  #path;

  constructor(sessionId, directory) {
    this.#id = sessionId;
    this.#path = join(resolve(directory), encode(sessionId) + ".jsonl");
  }

  async getSessionId() {
    return this.#id;
  }

  async getItems(limit) {
    const items = await this.#open(0, (_, content) => lines(content).map((line) => this.#item(line)));
    if (limit === undefined) return items ?? [];
    return limit <= 0 ? [] : (items ?? []).slice(-limit);
  }

  async addItems(items) {
    if (items.length === 0) return;
    checkJson(items);
    const text = items.map((item) => JSON.stringify(item) + "\n").join("");
    await this.#open(constants.O_CREAT, async (file, content) => {
      await file.truncate(content.length);
      await file.appendFile(text);
    });
  }

  async popItem() {
    return this.#open(0, async (file, content) => {
      const line = lines(content).at(-1);
      if (line === undefined) return undefined;
      const item = this.#item(line);
      await file.truncate(content.length - line.length - 1);
      return item;
    });
  }

  async clearSession() {
    await this.#open(0, (file) => file.truncate(0));
  }

  #item(line) {
    try {
      return JSON.parse(line.toString());
    } catch (error) {
      throw new Error(`${this.#path} is not a session: a line is not JSON: ${error.message}`);
    }
  }

  /** Calls an action with the file, opened to append, and its complete lines; does nothing if the file is missing. */
  async #open(flags, action) {
    const before = running.get(this.#path) ?? Promise.resolve();
    const call = before.then(async () => {
      const { O_RDWR, O_APPEND, O_NOFOLLOW } = constants;
      let file;
      try {
        file = await open(this.#path, O_RDWR | O_APPEND | O_NOFOLLOW | flags, 0o600);
      } catch (error) {
        if (error.code === "ENOENT" && flags === 0) return undefined;
        throw error;
      }
      try {
        const content = await file.readFile();
        return await action(file, content.subarray(0, content.lastIndexOf(NEWLINE) + 1));
      } finally {
        await file.close();
      }
    });
    const ended = call.then(() => {}, () => {});
    running.set(this.#path, ended);
    try {
      return await call;
    } finally {
      if (running.get(this.#path) === ended) running.delete(this.#path);
    }
  }
}

/** The complete lines of a file, without their ends. */
function lines(content) {
  const found = [];
  for (let from = 0, to; (to = content.indexOf(NEWLINE, from)) >= 0; from = to + 1) {
    found.push(content.subarray(from, to));
  }
  return found;
}
