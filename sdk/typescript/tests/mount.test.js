// Mounts, and what becomes of them however an action or a process ends.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { closeSync, existsSync, openSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { CommandError, Mount } from "../index.js";
import { cannotMount, directory, mountsUnder, node, program, scratch, until } from "./support.js";

const skip = cannotMount;

test("files are there during the action, and in the store after it", { skip }, async (t) => {
  const dir = scratch(t);
  const [path, store] = [directory(dir, "notes"), join(dir, "my notes.db")];
  for (const expected of [[], ["plan.md"]]) {
    const result = await Mount.use("sqlite", store, path, {}, (mount) => {
      assert.deepEqual(readdirSync(mount.path), expected);
      writeFileSync(join(mount.path, "plan.md"), "first step");
      return 7;
    });
    assert.equal(result, 7);
    assert.deepEqual(readdirSync(path), []);
  }
  assert.ok(existsSync(store));
});

test("an option reaches the command", { skip }, async (t) => {
  const dir = scratch(t);
  await Mount.use("agent-memory", join(dir, "avm.db"), directory(dir, "avm"), { agentId: "akashi" }, ({ path }) => {
    writeFileSync(join(path, "memory/private/akashi/rsi_rule.md"), "RSI > 70 → exit\n");
    assert.match(readFileSync(join(path, ":search?RSI"), "utf8"), /rsi_rule.md/);
  });
});

test("a mount that fails says what the command says", { skip }, async (t) => {
  const dir = scratch(t);
  const [full, empty] = [directory(dir, "full"), directory(dir, "empty")];
  writeFileSync(join(full, "file"), "");
  const failures = [
    ["not empty", ["memory", null, full]],
    ["No such file", ["memory", null, join(dir, "missing")]],
    ["unknown store sqlit", ["sqlit", null, empty]],
    ["--agent-id", ["memory", null, empty, { agentId: "kim" }]],
  ];
  for (const [reason, args] of failures) {
    await assert.rejects(() => Mount.open(...args), (error) => {
      return error instanceof CommandError && error.code !== 0 && error.stderr.includes(reason);
    });
  }
  await assert.rejects(() => Mount.open("memory", "store", empty), TypeError);
  await assert.rejects(() => Mount.open("sqlite", null, empty, { daemon: true }), TypeError);
});

test("an error of the action unmounts and goes on", { skip }, async (t) => {
  const path = directory(scratch(t), "notes");
  const action = () => {
    throw new RangeError("mine");
  };
  await assert.rejects(() => Mount.use("memory", null, path, {}, action), /mine/);
  assert.deepEqual(mountsUnder(join(path, "..")), []);
});

test("a mount in use and a crashed daemon are errors, and no mount is left", { skip }, async (t) => {
  const dir = scratch(t);
  const mount = await Mount.open("memory", null, directory(dir, "busy"));
  const file = openSync(join(mount.path, "a"), "w");
  await assert.rejects(() => mount.close(), (error) => error.stderr.includes("in use"));
  try {
    closeSync(file);
  } catch (error) {
    assert.equal(error.code, "ENOTCONN");
  }
  const crashed = await Mount.open("memory", null, directory(dir, "crashed"));
  const status = JSON.parse(execFileSync(program, ["status", "--json"], { encoding: "utf8" }));
  process.kill(status.find((each) => each.dir === crashed.path).process, "SIGKILL");
  await until("the crash", () => {
    try {
      readdirSync(crashed.path);
      return false;
    } catch {
      return true;
    }
  });
  await assert.rejects(() => crashed.close(), (error) => error.code === "SIGKILL");
  assert.deepEqual(mountsUnder(dir), []);
});

test("a mount that the user has ended is no error", { skip }, async (t) => {
  const dir = scratch(t);
  const mount = await Mount.open("memory", null, directory(dir, "notes"));
  execFileSync(program, ["unmount", mount.path]);
  await mount.close();
  await mount.close();
});

test("a process that ends in any way leaves no mount", { skip }, async (t) => {
  const dir = scratch(t);
  const path = directory(dir, "notes");
  const text = `import { Mount } from SDK; await Mount.open("memory", null, ${JSON.stringify(path)}); console.log("ready");`;
  const forgotten = node(text);
  assert.equal(await forgotten.ended, 0, forgotten.said.errors);
  assert.deepEqual(mountsUnder(dir), []);
  for (const sent of ["SIGKILL", "SIGTERM", "SIGINT"]) {
    for (const moment of ["ready", 50, 100, 200]) {
      const { child, said, ended } = node(text + "setTimeout(() => {}, 60_000);");
      if (moment === "ready") await until("ready", () => said.output.includes("ready"));
      else await new Promise((resolve) => setTimeout(resolve, moment));
      child.kill(sent);
      assert.equal(await ended, sent, said.errors);
      await until("the unmount", () => mountsUnder(dir).length === 0);
    }
  }
});
