// Runs, reports and tables.

import assert from "node:assert/strict";
import { existsSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { CommandError, cells, report, run } from "../index.js";
import { cannotMount, directory, mountsUnder, node, scratch, until } from "./support.js";

const SMALL = {
  workload: ["micro/write-1k"],
  state: "hot",
  backend: ["memory"],
  epochs: 3,
  rounds: 2,
  noProbes: true,
  policy: "none",
  seed: 7,
};

test("a run, its report and its cells are one", { skip: cannotMount }, async (t) => {
  const dir = scratch(t);
  const done = await run(undefined, { ...SMALL, budget: 20, out: join(dir, "run"), scratchDir: directory(dir, "work") });
  assert.equal(done.run, join(dir, "run"));
  assert.ok(existsSync(done.page));
  assert.deepEqual(await report(done.run), done);
  const rows = await cells(done.run);
  assert.deepEqual(new Set(rows.map((row) => row.arm)), new Set(["direct", "direct-again", "memory"]));
  const direct = rows.find((row) => row.arm === "direct");
  assert.equal(direct.metric, "write");
  assert.equal(direct.ratio, null);
  assert.ok(direct.typical_ns > 0 && direct.calls > 0);
  const table = join(done.run, "cells.csv");
  rmSync(table);
  assert.deepEqual(await cells(done.run), rows);
  writeFileSync(table, "an,earlier\ntable,1\n");
  utimesSync(table, 0, 0);
  assert.deepEqual(await cells(done.run), rows);
});

test("a command that fails says what it says", async (t) => {
  const dir = scratch(t);
  const says = (words) => (error) => error instanceof CommandError && error.stderr.includes(words);
  await assert.rejects(() => run("no-such-suite", { out: join(dir, "run") }), says("no-such-suite"));
  for (const read of [report, cells]) await assert.rejects(() => read(join(dir, "missing")), says("missing"));
});

test("SIGINT stops a run in order", { skip: cannotMount }, async (t) => {
  const dir = scratch(t);
  const options = { ...SMALL, rounds: 60, budget: 60, out: join(dir, "run"), scratchDir: directory(dir, "work") };
  const { child, said, ended } = node(`import { run } from SDK; await run(undefined, ${JSON.stringify(options)});`);
  await until("the run", () => existsSync(join(dir, "run", "samples.jsonl")) && mountsUnder(dir).length > 0);
  child.kill("SIGINT");
  assert.notEqual(await ended, 0);
  assert.match(said.errors, /ctxbench run --resume/);
  assert.match(said.errors, /exit code 130/);
  assert.deepEqual(mountsUnder(dir), []);
});
