// The tools over an agent's state, compared with those of the program.

import assert from "node:assert/strict";
import { test } from "node:test";

import { StateFiles, ToolError } from "../index.js";
import { Server } from "../lib/server.js";
import { without } from "./support.js";

const STEP = { id: "1", content: "Query “July”", status: "pending" };

/** Calls in their order; the texts of both implementations must be equal. */
const CALLS = [
  ["ls_files", {}],
  ["write_file", { file_path: "b/é.json", content: '{"a": "é"}\n' }],
  ["write_file", { file_path: "𝒂", content: "" }],
  ["write_file", { file_path: "\uff5e", content: "" }],
  ["write_file", { file_path: "__proto__", content: "x" }],
  ["write_file", { file_path: "long.txt", content: "line\n".repeat(4500) }],
  ["write_file", { file_path: "wide.txt", content: "é".repeat(300_000) }],
  ["write_file", { file_path: "middle.txt", content: "1\n" + "é".repeat(300_000) + "\n3" }],
  ["write_file", { file_path: "exact.txt", content: "x".repeat(256 * 1024 - 48) + "\n" + "y".repeat(100) }],
  ["write_file", { file_path: "pages.txt", content: ("x".repeat(400) + "\n").repeat(1000) }],
  ["ls_files", {}],
  ["ls", {}],
  ["read_file", { file_path: "b/é.json" }],
  ["read_file", { file_path: "__proto__" }],
  ["read_file", { file_path: "long.txt" }],
  ["read_file", { file_path: "long.txt", offset: 4400, limit: 50 }],
  ["read_file", { file_path: "long.txt", offset: 0, limit: 1 }],
  ["read_file", { file_path: "long.txt", offset: 4502 }],
  ["read_file", { file_path: "long.txt", limit: 0 }],
  ["read_file", { file_path: "long.txt", limit: -1 }],
  ["read_file", { file_path: "wide.txt" }],
  ["read_file", { file_path: "middle.txt" }],
  ["read_file", { file_path: "middle.txt", offset: 2 }],
  ["read_file", { file_path: "middle.txt", offset: 2, limit: 1 }],
  ["read_file", { file_path: "middle.txt", offset: 3 }],
  ["read_file", { file_path: "exact.txt" }],
  ["read_file", { file_path: "pages.txt" }],
  ["read_file", { file_path: "missing" }],
  ["read_file", { file_path: "constructor" }],
  ["write_file", { file_path: "", content: "x" }],
  ["write_file", { file_path: " \u00a0\u0085", content: "x" }],
  ["write_file", { file_path: "\ufeff", content: "x" }],
  ["write_file", { file_path: 'a\n"\\\t\r', content: "x" }],
  ["write_file", { file_path: "nul\0", content: "x" }],
  ["write_todos", { todos: [STEP, { content: "Save\n\t\x01", status: "in_progress" }] }],
  ["read_file", { file_path: "todos.json" }],
  ["write_todos", { todos: [STEP, STEP] }],
  ["write_todos", { todos: [{ content: " ", status: "pending" }] }],
  ["write_todos", { todos: [{ content: "x", status: "done" }] }],
  ["write_todos", { todos: [{ content: "x" }] }],
  ["write_todos", { todos: [{ status: "pending" }] }],
  ["write_todos", { todos: [{ ...STEP, due: "now" }] }],
  ["write_todos", { todos: [{ ...STEP, id: null }] }],
  ["write_todos", { todos: Array(1001).fill({ content: "x", status: "pending" }) }],
  ["write_todos", { todos: [{ activeForm: "Saving", content: "Save", status: "in_progress" }] }],
  ["read_file", { file_path: "todos.json" }],
  ["write_todos", { todos: [] }],
  ["read_file", { file_path: "todos.json" }],
  ["ls_files", {}],
];

const METHODS = {
  ls_files: (tools) => tools.lsFiles(),
  ls: (tools) => tools.ls(),
  write_file: (tools, { file_path, content }) => tools.writeFile(file_path, content),
  read_file: (tools, { file_path, ...rest }) => tools.readFile(file_path, rest),
  write_todos: (tools, { todos }) => tools.writeTodos(todos),
};

async function answer(call) {
  try {
    return await call();
  } catch (error) {
    assert.ok(error instanceof ToolError, error);
    return `refused: ${error.message}`;
  }
}

test("answers and refusals are those of the program", async () => {
  const server = await Server.start("state");
  const tools = new StateFiles({});
  for (const [tool, args] of CALLS) {
    const ours = await answer(() => METHODS[tool](tools, args));
    const theirs = await answer(() => server.call(tool, args));
    assert.equal(ours, theirs, JSON.stringify([tool, args]).slice(0, 80));
  }
  await server.close();
});

test("files are in the state of the framework", () => {
  const state = { messages: ["kept"] };
  const tools = new StateFiles(state);
  tools.writeFile("july.json", "[1]");
  assert.deepEqual(state, { messages: ["kept"], files: { "july.json": "[1]" } });
  state.files = { "october.json": "[]" };
  assert.match(tools.lsFiles(), /october.json \(2 bytes\)/);
  assert.doesNotMatch(tools.ls(), /july/);
});

test("a result of one line that is longer than a read is shown from its beginning", () => {
  const tools = new StateFiles({});
  const text = JSON.stringify(Array.from({ length: 12_000 }, (_, day) => ({ meeting_title: `All Hands ${day}` })));
  assert.ok(text.length > 400_000);
  tools.writeFile("july.json", text);
  for (const options of [{}, { limit: 1 }]) {
    const [header, line, note] = tools.readFile("july.json", options).split("\n");
    assert.ok(line.length > 262_000 && text.startsWith(line.slice("     1|".length)), line.slice(0, 80));
    assert.equal(Buffer.byteLength(`${header}\n${line}`), 256 * 1024);
    assert.match(note, /within a line, whose rest no read shows; write it as several lines/);
  }
});

const missing = await without("@langchain/langgraph");

test("a later run of a graph reads what a node returns as an update", { skip: missing }, async () => {
  const { Annotation, MemorySaver, START, StateGraph } = await import("@langchain/langgraph");
  const merged = Annotation({ reducer: (left, right) => ({ ...left, ...right }), default: () => ({}) });
  for (const files of [merged, Annotation()]) {
    const checkpointer = new MemorySaver();
    const thread = { configurable: { thread_id: "1" } };
    const run = (node) => {
      const graph = new StateGraph(Annotation.Root({ messages: Annotation(), files }));
      return graph.addNode("node", node).addEdge(START, "node").compile({ checkpointer }).invoke({ messages: [] }, thread);
    };
    await run((state) => {
      const tools = new StateFiles(state);
      return { messages: [tools.writeFile("july.json", "[1]")], ...tools.update() };
    });
    const { messages } = await run((state) => ({ messages: [new StateFiles(state).lsFiles()] }));
    assert.match(messages[0], /july\.json \(3 bytes\)/);
  }
});

test("a value that is not text is refused and changes nothing", () => {
  const tools = new StateFiles({});
  for (const content of [[1], null, undefined, 1]) {
    assert.throws(() => tools.writeFile("a", content), /content must be a text/);
  }
  assert.throws(() => tools.writeFile("a", "\ud800"), /not text/);
  for (const todos of ["plan", { content: "x" }, [1]]) assert.throws(() => tools.writeTodos(todos), TypeError);
  assert.deepEqual(tools.state, { files: {} });
  for (const files of [[], { a: 1 }]) assert.throws(() => new StateFiles({ files }), /must be an object/);
  const files = { "/plan.md": { content: ["find"] } };
  assert.throws(() => new StateFiles({ files }), /"\/plan\.md"\] is a file of deepagents/);
});
