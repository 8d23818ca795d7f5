// The package as npm installs it.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { program } from "../lib/command.js";
import { cannotMount, scratch } from "./support.js";

const SDK = new URL("..", import.meta.url).pathname;

/** Runs a module in a directory, without CTXBENCH_BIN and without PATH. */
function run(dir, text) {
  writeFileSync(join(dir, "a.mjs"), text);
  const env = { CTXBENCH_EMBEDDINGS: "none" };
  return spawnSync(process.execPath, ["a.mjs"], { cwd: dir, env, encoding: "utf8" });
}

test("the README's first lines find the program of npm's package without PATH", { skip: cannotMount }, (t) => {
  const dir = scratch(t);
  const { files } = JSON.parse(readFileSync(join(SDK, "package.json"), "utf8"));
  for (const name of ["package.json", ...files]) {
    cpSync(join(SDK, name), join(dir, "node_modules/ctxbench", name), { recursive: true });
  }
  const [first] = readFileSync(join(SDK, "README.md"), "utf8").split("```js\n")[1].split("\nawait Mount.use");
  const text = first.replace("/var/lib/agents", join(dir, "store"));
  const without = run(dir, text);
  assert.notEqual(without.status, 0);
  assert.match(without.stderr, /not on PATH, and the package ctxbench-linux-\w+ is not installed/);
  const platform = join(dir, `node_modules/ctxbench-${process.platform}-${process.arch}`);
  mkdirSync(platform);
  writeFileSync(join(platform, "package.json"), '{ "name": "x", "version": "0.0.0" }');
  symlinkSync(program(), join(platform, "ctxbench"));
  const said = run(dir, text);
  assert.equal(said.stderr, "");
  assert.match(said.stdout, /RSI > 70: exit/);
});
