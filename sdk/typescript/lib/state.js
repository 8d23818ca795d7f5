// File tools over the state of an agent framework: no mount and no process. Tools and texts are those of
// `ctxbench mcp state`.

import { ToolError } from "./errors.js";

/** The lines that a read shows by default. */
const READ_LIMIT = 2000;

/** The most bytes that a read shows. */
const READ_MAX = 256 * 1024;

/** The file with the agent's plan, and the most steps of it. */
const TODOS = "todos.json";
const TODOS_MAX = 1000;

const STATUSES = ["pending", "in_progress", "completed"];
const FIELDS = ["id", "content", "status", "activeForm"];

/** Tools over `state.files`, an object from file names to texts, which the framework saves with its state. */
export class StateFiles {
  constructor(state) {
    this.state = state;
    state.files ??= {};
    const files = Object.entries(state.files);
    const [name] = files.find(([, file]) => file?.content !== undefined) ?? [];
    if (name !== undefined) {
      throw new TypeError(
        `state.files[${JSON.stringify(name)}] is a file of deepagents, not a text: an agent of deepagents has file tools of ` +
          "its own; give StateFiles another state",
      );
    }
    const isText = ([, file]) => typeof file === "string";
    if (typeof state.files !== "object" || Array.isArray(state.files) || !files.every(isText)) {
      throw new TypeError("state.files must be an object from file names to texts");
    }
  }

  update() {
    return { files: (this.state.files ??= {}) };
  }

  lsFiles() {
    const names = Object.keys((this.state.files ??= {})).sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
    if (names.length === 0) return "No files in virtual workspace.";
    const lines = names.map((name) => `\n  ${name} (${Buffer.byteLength(this.state.files[name])} bytes)`);
    return "Files in virtual workspace:" + lines.join("");
  }

  ls() {
    return this.lsFiles();
  }

  writeFile(filePath, content) {
    checkText("write_file", "file_path", filePath);
    checkText("write_file", "content", content);
    if (/^\p{White_Space}*$/u.test(filePath) || /[\n\r\0]/.test(filePath)) {
      throw new ToolError(`Error: ${quoted(filePath)} is not a file name: it is empty or has more than one line.`);
    }
    if (!content.isWellFormed() || !filePath.isWellFormed()) {
      throw new ToolError(
        `Error: ${filePath} was not saved: its content is not text, and an agent's state holds only text.`,
      );
    }
    // A plain assignment to `__proto__` would make no file.
    const entry = { value: content, writable: true, enumerable: true, configurable: true };
    Object.defineProperty((this.state.files ??= {}), filePath, entry);
    return `✅ Saved ${filePath} (${Buffer.byteLength(content)} bytes, ${content.split("\n").length} lines)`;
  }

  readFile(filePath, { offset = 1, limit = READ_LIMIT } = {}) {
    checkText("read_file", "file_path", filePath);
    for (const number of [offset, limit]) {
      if (!Number.isSafeInteger(number)) {
        throw new TypeError(`read_file: offset and limit must be integers, not ${JSON.stringify(number)}`);
      }
      if (number < 0) throw invalid("read_file", `invalid value: integer \`${number}\`, expected u64`);
    }
    if (!Object.hasOwn((this.state.files ??= {}), filePath)) {
      throw new ToolError(`Error: File ${filePath} not found. Use ls_files() to see what there is.`);
    }
    const lines = this.state.files[filePath].split("\n");
    const total = lines.length;
    const first = Math.max(offset, 1);
    const last = Math.min(first + limit - 1, total);
    if (first > total || limit === 0) {
      throw new ToolError(`Error: ${filePath} has ${total} lines; there are none from line ${first} on (limit ${limit}).`);
    }
    const shown = lines.slice(first - 1, last);
    const numbered = shown.map((line, at) => `\n${String(first + at).padStart(6)}|${line}`);
    return shortened(`=== ${filePath} (lines ${first}-${last} of ${total}) ===` + numbered.join(""));
  }

  writeTodos(todos) {
    if (!Array.isArray(todos) || todos.some((todo) => typeof todo !== "object" || todo === null)) {
      throw new TypeError("write_todos: todos must be an array of objects");
    }
    const steps = todos.map(step);
    if (steps.length > TODOS_MAX) {
      throw new ToolError(`write_todos: there are ${steps.length} todos; the maximum is ${TODOS_MAX}`);
    }
    const ids = new Set();
    for (const [at, { id, content }] of steps.entries()) {
      if (/^\p{White_Space}*$/u.test(content)) {
        throw new ToolError(`write_todos: the content of todo ${at + 1} is empty; say what is to be done`);
      }
      if (ids.has(id)) throw new ToolError(`write_todos: two todos have the id ${quoted(id)}`);
      if (id !== undefined) ids.add(id);
    }
    this.writeFile(TODOS, JSON.stringify(steps, null, 2) + "\n");
    const [pending, begun, completed] = STATUSES.map((status) => steps.filter((each) => each.status === status).length);
    return `Saved ${TODOS}: ${pending} pending, ${begun} in progress, ${completed} completed`;
  }
}

/** A step with its fields in their order. */
function step(todo) {
  for (const name of Object.keys(todo)) {
    if (!FIELDS.includes(name)) {
      const known = FIELDS.map((field) => `\`${field}\``).join(", ");
      throw invalid("write_todos", `unknown field \`${name}\`, expected one of ${known}`);
    }
  }
  const given = FIELDS.filter((name) => todo[name] !== undefined && todo[name] !== null);
  for (const name of given) checkText("write_todos", name, todo[name]);
  for (const name of ["content", "status"]) {
    if (!given.includes(name)) throw invalid("write_todos", `missing field \`${name}\``);
  }
  if (!STATUSES.includes(todo.status)) {
    const known = STATUSES.map((status) => `\`${status}\``).join(", ");
    throw invalid("write_todos", `unknown variant \`${todo.status}\`, expected one of ${known}`);
  }
  return Object.fromEntries(given.map((name) => [name, todo[name]]));
}

function invalid(tool, reason) {
  return new ToolError(`${tool}: invalid arguments: ${reason}; see the tool's schema`);
}

function checkText(tool, name, value) {
  if (typeof value === "string") return;
  const hint = typeof value === "object" && value !== null ? "; use JSON.stringify" : "";
  throw new TypeError(`${tool}: ${name} must be a text, not ${value === null ? "null" : typeof value}${hint}`);
}

/** A text in quotation marks, on one line. */
function quoted(text) {
  const names = { "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0", '"': '\\"', "\\": "\\\\" };
  const escape = (each) => names[each] ?? `\\u{${each.codePointAt(0).toString(16)}}`;
  return `"${text.replace(/["\\]|(?! )[\p{C}\p{Z}]/gu, escape)}"`;
}

/** As much of a numbered text as a read shows: whole lines, or the beginning of a first line that is longer. */
function shortened(answer) {
  const bytes = Buffer.from(answer);
  if (bytes.length <= READ_MAX) return answer;
  let end = bytes.lastIndexOf(10, READ_MAX);
  let next = "continue with `offset`, or give `limit`";
  // The first line is the header.
  if (end <= bytes.indexOf(10)) {
    end = READ_MAX;
    // Not within a character.
    while ((bytes[end] & 0xc0) === 0x80) end -= 1;
    next = "within a line, whose rest no read shows; write it as several lines";
  }
  return `${bytes.subarray(0, end)}\n(truncated after ${READ_MAX} bytes; ${next})`;
}
