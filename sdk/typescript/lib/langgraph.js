// A directory of a mount as the store of a LangGraph agent. Its files are those of the Python SDK's CtxbenchStore.

import { constants, existsSync, mkdirSync, realpathSync } from "node:fs";
import { lstat, mkdir, open, readdir, readlink, realpath, rename, symlink, unlink, writeFile } from "node:fs/promises";
import { randomUUID } from "node:crypto";
import { join } from "node:path";

import { BaseStore } from "@langchain/langgraph";

import { invoke } from "./command.js";
import { checkJson } from "./json.js";
import { decode, encode } from "./names.js";

/** A link in the directory of a namespace. Its target says when the first item was put. */
const ORDER = ".order";

const SUFFIX = ".json";

/** The largest answer of a recall, in tokens. */
const RECALL_TOKENS = 1_000_000;

const MISSING = ["ENOENT", "ENOTDIR"];

/** The time of the last first put in this process, in nanoseconds. The clock counts milliseconds. */
let last = 0n;

export class CtxbenchStore extends BaseStore {
  #root;
  #running = Promise.resolve();

  constructor(directory) {
    super();
    if (!existsSync(directory)) mkdirSync(directory);
    this.#root = realpathSync(directory);
  }

  async batch(operations) {
    // One batch after the other.
    const batch = this.#running.then(() => this.#batch(operations));
    this.#running = batch.catch(() => {});
    return batch;
  }

  async #batch(operations) {
    const puts = new Map();
    const results = [];
    for (const op of operations) {
      let result = null;
      if ("namespacePrefix" in op) result = await this.#search(op);
      else if ("value" in op) puts.set(JSON.stringify([op.namespace, op.key]), [op, textOf(op)]);
      else if ("key" in op) result = await this.#read(op.namespace, op.key);
      else if ("matchConditions" in op) result = await this.#listNamespaces(op);
      else throw new TypeError(`unknown operation: ${JSON.stringify(op)}`);
      results.push(result);
    }
    for (const [op, text] of puts.values()) {
      if (text === null) await this.#delete(op.namespace, op.key);
      else await this.#write(op.namespace, op.key, text);
    }
    return results;
  }

  /** The directory of a namespace. Fails if a link on the way leads elsewhere. */
  async #directory(namespace) {
    const directory = join(this.#root, ...namespace.map(encode));
    // The directories above one that is missing are checked.
    for (let depth = namespace.length; depth > 0; depth -= 1) {
      const above = join(this.#root, ...namespace.slice(0, depth).map(encode));
      const real = await present(realpath(above));
      if (real === above) break;
      if (real !== null) throw new Error(`cannot use ${above}: a link on its path leads elsewhere (remove the link)`);
      if ((await present(lstat(above))) !== null) throw new Error(`cannot use ${above}: it is a link (remove it)`);
    }
    return directory;
  }

  async #read(namespace, key) {
    const path = join(await this.#directory(namespace), encode(key) + SUFFIX);
    const file = await present(open(path, constants.O_RDONLY | constants.O_NOFOLLOW));
    if (file === null) return null;
    let text, changed;
    try {
      changed = (await file.stat({ bigint: true })).mtimeNs;
      text = await file.readFile("utf8");
    } finally {
      await file.close();
    }
    const value = valueOf(text, path);
    const created = (await order(markOf(path))) ?? changed;
    // The clock of a file system may be a little behind.
    const updated = created > changed ? created : changed;
    return { value, key, namespace: [...namespace], createdAt: time(created), updatedAt: time(updated) };
  }

  async #write(namespace, key, text) {
    const directory = await this.#directory(namespace);
    await mkdir(directory, { recursive: true });
    const path = join(directory, encode(key) + SUFFIX);
    const fresh = join(directory, `.new-${randomUUID()}`);
    try {
      await writeFile(fresh, text, { flag: "wx" });
      await this.#mark(join(directory, ORDER));
      await this.#mark(markOf(path));
      await rename(fresh, path);
    } catch (error) {
      await present(unlink(fresh));
      throw error;
    }
  }

  /** Records the time of the first put, unless that was done. */
  async #mark(link) {
    const now = BigInt(Date.now()) * 1_000_000n;
    last = now > last ? now : last + 1n;
    // A link is not a note of an agent-memory.
    await symlink(String(last), link).catch((error) => {
      if (error.code !== "EEXIST") throw error;
    });
  }

  async #delete(namespace, key) {
    const path = join(await this.#directory(namespace), encode(key) + SUFFIX);
    await present(unlink(path));
    await present(unlink(markOf(path)));
  }

  /** The namespaces at and below a prefix, with their keys, both in the order of their first put. */
  async #namespaces(prefix) {
    const found = [];
    const waiting = [[await this.#directory(prefix), [...prefix]]];
    while (waiting.length > 0) {
      const [directory, namespace] = waiting.pop();
      const keys = [];
      for (const entry of (await present(readdir(directory, { withFileTypes: true }))) ?? []) {
        const path = join(directory, entry.name);
        if (entry.name.startsWith(".")) continue;
        if (entry.isDirectory()) {
          waiting.push([path, [...namespace, decode(entry.name)]]);
        } else if (entry.isFile() && entry.name.endsWith(SUFFIX)) {
          // A file of a person or a program may have no mark.
          const put = (await order(markOf(path))) ?? (await present(lstat(path, { bigint: true })))?.mtimeNs;
          if (put !== undefined) keys.push([put, decode(entry.name.slice(0, -SUFFIX.length))]);
        }
      }
      keys.sort(byFirst);
      const created = (await order(join(directory, ORDER))) ?? keys[0]?.[0];
      if (created !== undefined) found.push([created, namespace, keys.map(([, key]) => key)]);
    }
    return found.sort(byFirst);
  }

  async #search({ namespacePrefix, filter, limit = 10, offset = 0, query }) {
    let places, leftOut = 0;
    if (query) {
      [places, leftOut] = await this.#recall(namespacePrefix, query);
    } else {
      const namespaces = await this.#namespaces(namespacePrefix);
      places = namespaces.flatMap(([, namespace, keys]) => keys.map((key) => [namespace, key]));
    }
    if (filter) {
      const wanted = Object.entries(filter);
      const kept = [];
      for (const place of places) {
        const item = await this.#read(...place);
        if (item !== null && wanted.every(([name, part]) => matches(own(item.value, name), part))) kept.push(place);
      }
      places = kept;
    }
    if (leftOut > 0 && !(0 <= offset && offset <= offset + limit && offset + limit <= places.length)) {
      throw new Error(
        `${leftOut} relevant items do not fit into a recall: ` +
          "search in a longer namespace, or with a smaller limit or offset",
      );
    }
    const items = [];
    for (const place of places.slice(offset, offset + limit)) {
      const item = await this.#read(...place);
      // Another process may have deleted it.
      if (item !== null) items.push({ ...item, score: undefined });
    }
    return items;
  }

  /** The items that a recall shows, and how many relevant notes it does not show. */
  async #recall(prefix, query) {
    const directory = await this.#directory(prefix);
    if ((await present(lstat(join(this.#root, ":stats")))) === null) {
      throw new Error(
        `a search with a query needs an agent-memory, and ${this.#root} is not in one ` +
          '(mount "agent-memory", or leave the query out)',
      );
    }
    if ((await present(lstat(directory))) === null) return [[], 0];
    const answer = await invoke(["recall", `--max-tokens=${RECALL_TOKENS}`, "--", directory, query]);
    const lines = answer.split("\n");
    // No line of an item begins so: a tab follows each of its newlines.
    const paths = lines.filter((line) => line.startsWith("## ")).map((line) => line.slice(3));
    const places = [];
    for (const path of paths) {
      // In the root of a mount, paths begin with `/`.
      const labels = path.replace(/^\//, "").split("/");
      if (!labels.at(-1).endsWith(SUFFIX) || labels.some((label) => label.startsWith("."))) continue;
      const key = decode(labels.pop().slice(0, -SUFFIX.length));
      places.push([[...prefix, ...labels.map(decode)], key]);
    }
    const relevant = Number(/^# \d+ of (\d+) /.exec(lines[0])?.[1] ?? 0);
    return [places, Math.max(relevant - paths.length, 0)];
  }

  async #listNamespaces({ matchConditions = [], maxDepth, limit, offset = 0 }) {
    const all = (await this.#namespaces([])).map(([, namespace]) => namespace);
    const named = all.filter((namespace) => (matchConditions ?? []).every((condition) => names(condition, namespace)));
    const paths = named.map((namespace) => namespace.slice(0, maxDepth));
    const cut = new Map(paths.map((path) => [JSON.stringify(path), path]));
    const sorted = [...cut.values()].sort((one, other) => one.join(":").localeCompare(other.join(":")));
    return sorted.slice(offset, limit === undefined ? undefined : offset + limit);
  }
}

/**
 * The value of a put as JSON in which newlines and tabs of texts stand as they are; null for a deletion. A full-text
 * index would take the `n` of an escaped newline for a part of the next word.
 */
function textOf({ value, index }) {
  if (index !== undefined && index !== null) {
    throw new Error("the index has the whole value of each item: leave the argument index out");
  }
  if (value === null) return null;
  checkJson(value);
  const raw = { "\\n": "\n\t", "\\t": "\t" };
  return JSON.stringify(value).replace(/\\./g, (escape) => raw[escape] ?? escape);
}

/** The value of an item's file. */
function valueOf(text, path) {
  // Within texts, JSON has no control characters; between its parts, they mean nothing.
  const written = { "\n": "\\n", "\t": "\\t", "\r": "\\r" };
  const strings = /"(?:[^"\\]|\\[^])*"/g;
  const escaped = (part) => part.replace(/[\n\t\r]/g, (each) => written[each]);
  const json = text.replaceAll("\n\t", "\n").replace(strings, escaped);
  let value;
  try {
    value = JSON.parse(json);
  } catch (error) {
    throw new Error(`${path} is not an item: ${error.message}`);
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new Error(`${path} is not an item: it has no JSON object`);
  }
  return value;
}

/** What a call on a file gives; null if the file is missing. */
async function present(promise) {
  try {
    return await promise;
  } catch (error) {
    if (MISSING.includes(error.code)) return null;
    throw error;
  }
}

function time(nanoseconds) {
  return new Date(Number(nanoseconds / 1_000_000n));
}

/** The link that records when an item was first put. */
function markOf(path) {
  const at = path.lastIndexOf("/") + 1;
  return path.slice(0, at) + "." + path.slice(at);
}

/** The nanoseconds that a link records; undefined if there is no such link. */
async function order(link) {
  try {
    return BigInt(await readlink(link));
  } catch {
    return undefined;
  }
}

function byFirst([one], [other]) {
  return one < other ? -1 : one > other ? 1 : 0;
}

function own(value, name) {
  return Object.hasOwn(value, name) ? value[name] : undefined;
}

/** Whether a namespace begins or ends with the path of a condition, in which `*` is any label. */
function names({ matchType, path }, namespace) {
  if (!["prefix", "suffix"].includes(matchType)) throw new TypeError(`unknown kind of match: ${matchType}`);
  if (path.length > namespace.length) return false;
  const first = matchType === "prefix" ? 0 : namespace.length - path.length;
  return path.every((wanted, at) => wanted === "*" || wanted === namespace[first + at]);
}

const OPERATORS = {
  $eq: (value, operand) => value === operand,
  $ne: (value, operand) => value !== operand,
  $gt: (value, operand) => Number(value) > Number(operand),
  $gte: (value, operand) => Number(value) >= Number(operand),
  $lt: (value, operand) => Number(value) < Number(operand),
  $lte: (value, operand) => Number(value) <= Number(operand),
  $in: (value, operand) => Array.isArray(operand) && operand.includes(value),
  $nin: (value, operand) => !Array.isArray(operand) || !operand.includes(value),
};

/** Whether a part of an item is as a filter says: equal, or in the relation of operators such as `$gt`. */
function matches(value, wanted) {
  const isOperator = (name) => Object.hasOwn(OPERATORS, name);
  if (typeof wanted === "object" && wanted !== null && Object.keys(wanted).every(isOperator)) {
    return Object.entries(wanted).every(([name, operand]) => OPERATORS[name](value, operand));
  }
  return value === wanted;
}
