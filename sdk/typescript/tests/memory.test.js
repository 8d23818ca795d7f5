// An agent's memory, with the calls of source 3's listing.

import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";

import { CommandError, Memory, ToolError, agentMemory } from "../index.js";
import { cannotMount, mountsUnder, node, scratch, until } from "./support.js";

const LISTING = `
import { Memory } from SDK;
const agent = await new Memory().agentMemory("akashi");
await agent.remember("RSI > 70 on NVDA → average -12% in 5 days", {
  title: "nvda_rsi_rule",
  importance: 0.9,
  tags: ["trading", "nvda"],
});
const context = await agent.recall("NVDA risk", { maxTokens: 2000 });
await agent.remember("Market regime: risk-off, reduce exposure", { namespace: "market" });
console.log(context);
`;

test("source 3's listing runs, and the end of the process unmounts", { skip: cannotMount }, async (t) => {
  const dir = scratch(t);
  const listing = node(LISTING, { XDG_DATA_HOME: dir });
  assert.equal(await listing.ended, 0, listing.said.errors);
  assert.match(listing.said.output, /\/memory\/private\/akashi\/nvda_rsi_rule.md/);
  assert.match(listing.said.output, /RSI > 70 on NVDA → average -12% in 5 days/);
  assert.deepEqual(mountsUnder(dir), []);
  const memory = new Memory(join(dir, "ctxbench", "memory"));
  const found = await (await memory.agentMemory("kim")).recall("NVDA risk market regime");
  assert.match(found, /## \/memory\/shared\/market\//);
  assert.doesNotMatch(found, /RSI/);
  await memory.close();
});

test("each argument has its effect, and a wrong one is refused with the reason", { skip: cannotMount }, async (t) => {
  const dir = scratch(t);
  const memory = new Memory(join(dir, "store"));
  const agent = await memory.agentMemory("akashi");
  assert.equal(await agent.remember("Exit at 70", { title: "rule", importance: 1 }), "/memory/private/akashi/rule.md");
  assert.equal(await agent.remember("Exit", { title: "r", namespace: "market" }), "/memory/shared/market/r.md");
  await agent.remember("Exit now", { title: "soon", ttl: 1, tags: ["x"] });
  await new Promise((resolve) => setTimeout(resolve, 2100));
  const found = await agent.recall("exit", { strategy: "importance" });
  assert.doesNotMatch(found, /soon/);
  assert.match(found, /^## .*rule.md$/m);
  const refused = [
    [/`text` is empty/, () => agent.remember(" ")],
    [/importance is 2/, () => agent.remember("x", { importance: 2 })],
    [/the namespace/, () => agent.remember("x", { namespace: "../private/kim" })],
    [/max_tokens is 1;/, () => agent.recall("x", { maxTokens: 1 })],
  ];
  for (const [reason, call] of refused) {
    await assert.rejects(call, (error) => error instanceof ToolError && reason.test(error.message));
  }
  await assert.rejects(() => agent.remember("x", { tags: "trading" }), TypeError);
  // Calls that are not waited for are made one after the other.
  const paths = await Promise.all(["a", "b", "c"].map((title) => agent.remember("many", { title })));
  assert.equal(paths.length, 3);
  await memory.close();
});

test("agents of one store take turns and keep their notes apart", { skip: cannotMount }, async (t) => {
  const store = join(scratch(t), "store");
  const memory = new Memory(store);
  const [one, other] = await Promise.all([memory.agentMemory("akashi"), agentMemory("kim", { store })]);
  await Promise.all([one.remember("my secret plan"), other.remember("my other plan")]);
  assert.match(await one.recall("plan"), /secret/);
  assert.doesNotMatch(await other.recall("plan"), /secret/);
  await assert.rejects(() => memory.agentMemory("../kim"), (error) => {
    return error instanceof CommandError && error.stderr.includes("../kim");
  });
  await memory.close();
});

test("a killed process leaves no mount", { skip: cannotMount }, async (t) => {
  const dir = scratch(t);
  for (const sent of ["SIGKILL", "SIGTERM", "SIGINT"]) {
    const text = LISTING + "console.log('ready'); setTimeout(() => {}, 60_000);";
    const { child, said, ended } = node(text, { XDG_DATA_HOME: join(dir, sent) });
    await until("ready", () => said.output.includes("ready") || child.exitCode !== null);
    assert.notDeepEqual(mountsUnder(dir), [], said.errors);
    child.kill(sent);
    await ended;
    await until("the unmount", () => mountsUnder(dir).length === 0);
  }
});
