// Claude's memory tool, called as the package @anthropic-ai/sdk calls it.

import assert from "node:assert/strict";
import { chmodSync, mkdirSync, readFileSync, readdirSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { once } from "node:events";
import { dirname, join } from "node:path";
import { test } from "node:test";

import { Mount } from "../index.js";
import { cannotMount, directory, example, scratch, without } from "./support.js";

const skip = cannotMount || (await without("@anthropic-ai/sdk"));
const { memoryTool } = skip ? {} : await import("../lib/anthropic.js");

const MESSAGES = [{ role: "user", content: "I like tea." }];
const header = (path) =>
  `Here're the files and directories up to 2 levels deep in ${path}, excluding hidden items and node_modules:`;

/** Calls an action with a tool and its directory, which is in a mount. */
async function withTool(t, action) {
  const dir = scratch(t);
  const mount = await Mount.open("agent-memory", join(dir, "claude.db"), directory(dir, "mnt"), { agentId: "claude" });
  try {
    const path = join(mount.path, "memory/private/claude");
    const tool = memoryTool(path);
    const call = (command, name, more) => tool.run({ command, ...(name ? { path: `/memories/${name}` } : {}), ...more });
    const refuses = async (message, ...words) => {
      await assert.rejects(async () => call(...words), (error) => {
        assert.equal(error.content, message);
        return true;
      });
    };
    await action({ dir, path, tool, call, refuses });
  } finally {
    await mount.close();
  }
}

test("each command answers as Anthropic's documentation says", { skip }, async (t) => {
  await withTool(t, async ({ path, tool, call }) => {
    assert.deepEqual([tool.type, tool.name], ["memory_20250818", "memory"]);
    const file = join(path, "notes/july.md");
    const created = await call("create", "notes/july.md", { file_text: "one\ntwo\nthree\n" });
    assert.equal(created, "File created successfully at: /memories/notes/july.md");
    const shown = "Here's the content of /memories/notes/july.md with line numbers:\n";
    assert.equal(await call("view", "notes/july.md"), `${shown}     1\tone\n     2\ttwo\n     3\tthree\n     4\t`);
    assert.equal(await call("view", "notes/july.md", { view_range: [2, 2] }), `${shown}     2\ttwo`);
    assert.equal(await call("view", "notes/july.md", { view_range: [3, -1] }), `${shown}     3\tthree\n     4\t`);
    chmodSync(file, 0o640);
    const edited = await call("str_replace", "notes/july.md", { old_str: "two", new_str: "2\n$&" });
    assert.equal(edited, "The memory file has been edited.\n     1\tone\n     2\t2\n     3\t$&\n     4\tthree\n     5\t");
    const inserted = await call("insert", "notes/july.md", { insert_line: 0, insert_text: "zero\n" });
    assert.equal(inserted, "The file /memories/notes/july.md has been edited.");
    await call("insert", "notes/july.md", { insert_line: 5, insert_text: "four" });
    assert.equal(readFileSync(file, "utf8"), "zero\none\n2\n$&\nthree\nfour\n");
    assert.equal(statSync(file).mode & 0o777, 0o640);
    const moved = await call("rename", "", { old_path: "/memories/notes", new_path: "/memories/old/2026" });
    assert.equal(moved, "Successfully renamed /memories/notes to /memories/old/2026");
    assert.equal(await call("delete", "old"), "Successfully deleted /memories/old");
    assert.deepEqual(readdirSync(path), []);
    writeFileSync(join(path, "ends.md"), "\ufeffa\r\nb");
    await call("insert", "ends.md", { insert_line: 2, insert_text: "c" });
    assert.equal(readFileSync(join(path, "ends.md"), "utf8"), "\ufeffa\r\nb\nc\n");
    const recalled = await call("view", ":recall?query=b%2Fc");
    assert.match(recalled, /ends.md/);
  });
});

test("a directory lists two levels with sizes and without hidden names", { skip }, async (t) => {
  await withTool(t, async ({ path, call }) => {
    for (const [name, size] of Object.entries({ "b.md": 1536, "a/c.md": 7, "a/b/d.md": 1, ".hidden": 1, "node_modules/x": 1 })) {
      mkdirSync(dirname(join(path, name)), { recursive: true });
      writeFileSync(join(path, name), "x".repeat(size));
    }
    symlinkSync("/etc", join(path, "link"));
    const shown = (await call("view", "", { path: "/memories" })).split("\n");
    assert.equal(shown[0], header("/memories"));
    assert.match(shown[1], /^\d[^\t]*\t\/memories$/);
    const names = shown.slice(2).map((line) => line.split("\t")[1]);
    assert.deepEqual(names, ["/memories/a/", "/memories/a/b/", "/memories/a/c.md", "/memories/b.md"]);
    assert.ok(shown.includes("1.5K\t/memories/b.md") && shown.includes("7B\t/memories/a/c.md"));
  });
});

test("each error is that of Anthropic's documentation", { skip }, async (t) => {
  await withTool(t, async ({ path, call, refuses }) => {
    writeFileSync(join(path, "a.md"), "aaa\nb\nb\n");
    mkdirSync(join(path, "dir"));
    const missing = (name) => `Error: The path /memories/${name} does not exist. Please provide a valid path.`;
    await refuses(missing("x"), "view", "x");
    await refuses("Error: File /memories/a.md already exists", "create", "a.md", { file_text: "new" });
    for (const name of ["x", "dir"]) {
      await refuses(missing(name), "str_replace", name, { old_str: "a", new_str: "b" });
      await refuses(missing(name), "insert", name, { insert_line: 0, insert_text: "b" });
    }
    const absent = "No replacement was performed, old_str `z` did not appear verbatim in /memories/a.md.";
    await refuses(absent, "str_replace", "a.md", { old_str: "z", new_str: "b" });
    for (const [old, lines] of [["b", "2, 3"], ["aa", "1, 1"]]) {
      const several = `No replacement was performed. Multiple occurrences of old_str \`${old}\` in lines: ${lines}. `;
      await refuses(`${several}Please ensure it is unique`, "str_replace", "a.md", { old_str: old, new_str: "c" });
    }
    for (const line of [-1, 4]) {
      const range = "It should be within the range of lines of the file: [0, 3]";
      const message = `Error: Invalid \`insert_line\` parameter: ${line}. ${range}`;
      await refuses(message, "insert", "a.md", { insert_line: line, insert_text: "x" });
    }
    for (const lines of [[0, 1], [5, 6], [2, 1]]) {
      await assert.rejects(async () => call("view", "a.md", { view_range: lines }), /Invalid `view_range`/);
    }
    await refuses("Error: The path /memories/x does not exist", "delete", "x");
    await refuses("Error: The path /memories/x does not exist", "rename", "", { old_path: "/memories/x", new_path: "/memories/y" });
    const taken = { old_path: "/memories/a.md", new_path: "/memories/dir" };
    await refuses("Error: The destination /memories/dir already exists", "rename", "", taken);
    writeFileSync(join(path, "binary"), Buffer.from([0xff, 0xfe]));
    await refuses("Error: The file /memories/binary is not a text in UTF-8", "view", "binary");
    for (const words of [
      ["delete", "", { path: "/memories" }],
      ["rename", "", { old_path: "/memories", new_path: "/memories/y" }],
      ["rename", "", { old_path: "/memories/dir", new_path: "/memories/dir/in/it" }],
      ["create", "x".repeat(300), { file_text: "" }],
      ["create", "lone", { file_text: "\ud800" }],
    ]) {
      await assert.rejects(async () => call(...words), { name: "ToolError", message: /^Error: / });
    }
    assert.equal(readFileSync(join(path, "a.md"), "utf8"), "aaa\nb\nb\n");
  });
});

test("no path leads out of the directory", { skip }, async (t) => {
  await withTool(t, async ({ dir, path, tool, call }) => {
    const outside = directory(dir, "outside");
    writeFileSync(join(outside, "secret.md"), "secret");
    mkdirSync(join(path, "dir"));
    symlinkSync(outside, join(path, "dir/linked"));
    symlinkSync(join(outside, "secret.md"), join(path, "linked.md"));
    symlinkSync(join(outside, "new.md"), join(path, "dangling"));
    const commands = (path) => [
      { command: "view", path },
      { command: "create", path, file_text: "x" },
      { command: "str_replace", path, old_str: "secret", new_str: "x" },
      { command: "insert", path, insert_line: 0, insert_text: "x" },
    ];
    const moves = (path) => [
      { command: "delete", path },
      { command: "rename", old_path: path, new_path: "/memories/stolen" },
      { command: "rename", old_path: "/memories/dir", new_path: path },
    ];
    for (const name of [
      "/etc/passwd",
      "/memories/../../../outside/secret.md",
      "/memories/dir/..",
      "/memories/./a",
      "/memoriesx/a",
      "memories/a",
      "",
      undefined,
      join(outside, "secret.md"),
      "/memories/%2e%2e/secret.md",
      "/memories/%2E%2E%2Fsecret.md",
      "/memories/%252e%252e/secret.md",
      "/memories/..%5csecret.md",
      "/memories/..\\secret.md",
      "/memories/dir/linked/secret.md",
      "/memories/dir/linked/new/deep.md",
      "/memories/a\0b",
    ]) {
      for (const command of [...commands(name), ...moves(name)]) {
        await assert.rejects(async () => tool.run(command), { name: "ToolError" }, JSON.stringify(command));
      }
    }
    for (const name of ["/memories/linked.md", "/memories/dangling"]) {
      for (const command of commands(name)) {
        await assert.rejects(async () => tool.run(command), { name: "ToolError" }, JSON.stringify(command));
      }
    }
    await call("delete", "linked.md");
    await call("delete", "dir");
    assert.deepEqual(readdirSync(path), ["dangling"]);
    assert.deepEqual(readdirSync(outside), ["secret.md"]);
    assert.equal(readFileSync(join(outside, "secret.md"), "utf8"), "secret");
  });
});

/** A client of a model that uses the memory tool so, one use an answer, and the requests that the model gets. */
async function model(t, uses) {
  const { default: Anthropic } = await import("@anthropic-ai/sdk");
  const asked = [];
  const server = createServer(async (request, response) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    const step = asked.push(JSON.parse(Buffer.concat(parts))) - 1;
    const use = { type: "tool_use", id: `toolu_${step}`, name: "memory", input: uses[step] };
    const message = {
      ...{ id: "m", type: "message", role: "assistant", model: "m", stop_sequence: null },
      content: step < uses.length ? [use] : [{ type: "text", text: "done" }],
      stop_reason: step < uses.length ? "tool_use" : "end_turn",
      usage: { input_tokens: 1, output_tokens: 1 },
    };
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(message));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  const baseURL = `http://127.0.0.1:${server.address().port}`;
  return { client: new Anthropic({ apiKey: "none", baseURL }), asked };
}

test("the package's tool runner executes the commands of a model", { skip }, async (t) => {
  await withTool(t, async ({ path, tool }) => {
    const { client, asked } = await model(t, [
      { command: "create", path: "/memories/a.md", file_text: "likes tea" },
      { command: "view", path: "/memories/../b.md" },
    ]);
    const answer = await client.beta.messages.toolRunner({ model: "m", max_tokens: 100, messages: MESSAGES, tools: [tool] });
    assert.equal(answer.content[0].text, "done");
    assert.deepEqual(asked[0].tools, [{ type: "memory_20250818", name: "memory" }]);
    const results = asked.slice(1).map((request) => request.messages.at(-1).content[0]);
    assert.equal(results[0].content, "File created successfully at: /memories/a.md");
    assert.equal(results[1].is_error, true);
    assert.match(JSON.stringify(results[1].content), /has \. or \.\. in it/);
    assert.equal(readFileSync(join(path, "a.md"), "utf8"), "likes tea");
  });
});

test("the example of the README runs", { skip }, async (t) => {
  const dir = scratch(t);
  const { client, asked } = await model(t, [{ command: "view", path: "/memories" }]);
  directory(dir, "avm");
  const said = await example(dir, "ctxbench/anthropic", { client, model: "m", messages: MESSAGES });
  assert.match(said, /done/);
  assert.ok(JSON.stringify(asked[1].messages.at(-1).content).includes(header("/memories")));
});
