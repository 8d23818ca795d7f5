// The store for LangGraph, beside the package's own InMemoryStore.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { Mount } from "../index.js";
import { cannotMount, directory, example, generator, scratch, without } from "./support.js";

const skip = cannotMount || (await without("@langchain/langgraph"));
const { InMemoryStore, StateGraph, Annotation, START, END } = skip ? {} : await import("@langchain/langgraph");
const { CtxbenchStore } = skip ? {} : await import("../lib/langgraph.js");

const LABELS = ["users", "kim", "a b", "Ü/1", "%", "prefs", "x'(!)*"];
const KEYS = ["diet", "..", ".order", "a/b", "Ü", "", "%2E", "new\nline", "🍵"];
const TEXTS = ["Tea", "two\nlines\twith\ttabs", "\\n\\\\n", "\n\t\n\n\t\t", 'quoted "words"\\', "## /users/kim/diet.json", "\u2028\r\n"];

function mounted(kind, dir) {
  const store = kind === "memory" ? null : join(dir, `${kind}.db`);
  return Mount.open(kind, store, directory(dir, `mnt-${kind}`));
}

/** An operation. Their store lists each namespace that a delete named, so deletes name a known one. */
function operation(random, known) {
  const whole = (from, to) => from + Math.floor(random() * (to - from + 1));
  const choose = (list) => list[whole(0, list.length - 1)];
  const value = () => {
    const part = choose([choose(TEXTS), whole(-3, 3), 0.5, null, true, [1, [2]], { Ä: [] }]);
    return { text: choose(TEXTS), n: whole(0, 3), part };
  };
  const kind = random();
  if (kind < 0.4 || known.length === 0) {
    const namespace = Array.from({ length: whole(1, 3) }, () => choose(LABELS));
    return { namespace, key: choose(KEYS), value: value() };
  }
  if (kind < 0.5) return { ...choose(known), value: choose([null, value()]) };
  if (kind < 0.65) return { namespace: choose(known).namespace, key: choose(KEYS) };
  const [limit, offset] = [choose([undefined, 0, 1, 3, 12, -2]), choose([undefined, 0, 1, 5])];
  if (kind < 0.85) {
    const { namespace } = choose(known);
    const filters = [
      undefined,
      {},
      { n: 1 },
      { n: { $gte: 1, $lt: 3 } },
      { n: { $ne: 2 }, text: { $eq: "Tea" } },
      { n: { $gt: "0.5" } },
      { part: [1, [2]] },
      { n: { $in: [1, 2] }, part: { $nin: [null] } },
      { n: { $like: 1 } },
      { n: {} },
      { missing: undefined },
    ];
    return { namespacePrefix: namespace.slice(0, whole(0, namespace.length)), filter: choose(filters), limit, offset };
  }
  const conditions = Array.from({ length: whole(0, 2) }, () => ({
    matchType: choose(["prefix", "suffix"]),
    path: Array.from({ length: whole(0, 2) }, () => choose(["*", ...LABELS])),
  }));
  return { matchConditions: choose([undefined, conditions]), maxDepth: choose([undefined, 1, 2]), limit, offset };
}

async function answer(store, operations) {
  const plain = (part) => (part?.createdAt === undefined ? part : { ...part, createdAt: null, updatedAt: null });
  // Their items change later.
  const results = await store.batch(operations);
  return structuredClone(results.map((part) => (Array.isArray(part) ? part.map(plain) : plain(part))));
}

test("any sequence of operations answers as the store of LangGraph", { skip }, async (t) => {
  const dir = scratch(t);
  for (const [kind, seed] of [["agent-memory", 1], ["sqlite", 2], ["memory", 3]]) {
    const mount = await mounted(kind, dir);
    try {
      const random = generator(seed);
      const known = [];
      const theirs = new InMemoryStore();
      let ours = new CtxbenchStore(join(mount.path, "store"));
      for (let step = 0; step < 150; step += 1) {
        const drawn = Array.from({ length: 1 + Math.floor(random() * 4) }, () => operation(random, known));
        // A put changes the object that their get in the same batch has returned.
        const id = ({ namespace, key }) => JSON.stringify([namespace, key]);
        const put = new Set(drawn.filter((op) => "value" in op).map(id));
        const operations = drawn.filter((op) => !("key" in op) || "value" in op || !put.has(id(op)));
        const expected = await answer(theirs, operations);
        const got = await answer(ours, operations);
        assert.deepEqual(got, expected, `step ${step} of seed ${seed}: ${JSON.stringify(operations)}`);
        for (const op of operations) if (op.value) known.push({ namespace: op.namespace, key: op.key });
        // Another process would see the same.
        if (random() < 0.1) ours = new CtxbenchStore(join(mount.path, "store"));
      }
      assert.ok(known.length > 20);
    } finally {
      await mount.close();
    }
  }
});

test("a query recalls items of its namespace that the filter allows", { skip }, async (t) => {
  const dir = scratch(t);
  const mount = await mounted("agent-memory", dir);
  try {
    for (const root of [mount.path, join(mount.path, "notes")]) {
      const store = new CtxbenchStore(root);
      const memories = { one: "likes tea", two: "likes coffee\nafter lunch", three: "## /users/kim/one.json" };
      for (const [at, [key, memory]] of Object.entries(memories).entries()) {
        await store.put(["users", "kim"], key, { memory, year: at + 1 });
      }
      await store.put(["users", "lee"], "four", { memory: "likes tea and lunch" });
      writeFileSync(join(mount.path, "tea.md"), "Tea is a note, and not an item.\n");
      const found = async (prefix, options) => {
        const items = await store.search(prefix, options);
        return items.map((item) => `${item.namespace.at(-1)}/${item.key}`);
      };
      assert.deepEqual(await found(["users", "kim"], { query: "tea" }), ["kim/one"]);
      assert.deepEqual(await found(["users", "kim"], { query: "after" }), ["kim/two"]);
      assert.deepEqual((await found([], { query: "lunch" })).sort(), ["kim/two", "lee/four"]);
      assert.deepEqual(await found(["users"], { query: "likes", filter: { year: { $eq: 2 } } }), ["kim/two"]);
      const both = await found(["users"], { query: "tea" });
      const pages = [0, 1].map((offset) => found(["users"], { query: "tea", limit: 1, offset }));
      assert.deepEqual((await Promise.all(pages)).flat(), both);
      assert.deepEqual(await found(["users"], { query: "zebra" }), []);
      assert.deepEqual(await found(["missing"], { query: "tea" }), []);
    }
  } finally {
    await mount.close();
  }
});

test("what the store does not offer is refused and puts nothing, and no link leads out", { skip }, async (t) => {
  const dir = scratch(t);
  const mount = await mounted("sqlite", dir);
  try {
    const store = new CtxbenchStore(mount.path);
    const put = { namespace: ["a"], key: "k", value: {} };
    for (const [reason, call] of [
      [/leave the argument index out/, () => store.put(["a"], "k", {}, ["x"])],
      [/leave the argument index out/, () => store.put(["a"], "k", {}, false)],
      [/needs an agent-memory/, () => store.search(["a"], { query: "tea" })],
      [/JSON cannot hold/, () => store.put(["a"], "k", { x: [new Date()] })],
      [/JSON cannot hold/, () => store.put(["a"], "k", { x: NaN })],
      [/JSON cannot hold/, () => store.put(["a"], "k", { x: [undefined] })],
      [/cannot be encoded/, () => store.put(["a"], "\ud800", {})],
      [/leave the argument index/, () => store.batch([put, { ...put, key: "l", index: false }])],
    ]) {
      await assert.rejects(call, reason);
    }
    assert.deepEqual([await store.listNamespaces(), await store.search([])], [[], []]);
    const outside = directory(dir, "outside");
    writeFileSync(join(outside, "k.json"), '{"secret": 1}');
    symlinkSync(outside, join(mount.path, "linked"));
    symlinkSync(join(dir, "nowhere"), join(mount.path, "dangling"));
    mkdirSync(join(mount.path, "users"));
    symlinkSync(join(outside, "k.json"), join(mount.path, "users/k.json"));
    for (const call of [
      () => store.get(["linked"], "k"),
      () => store.put(["linked"], "k", {}),
      () => store.put(["linked", "deep"], "k", {}),
      () => store.put(["dangling"], "k", {}),
      () => store.delete(["linked"], "k"),
      () => store.get(["users"], "k"),
    ]) {
      await assert.rejects(call);
    }
    await store.put(["users"], "k", { n: 1 });
    assert.equal(readFileSync(join(outside, "k.json"), "utf8"), '{"secret": 1}');
    assert.equal(readFileSync(join(mount.path, "users/k.json"), "utf8"), '{"n":1}');
  } finally {
    await mount.close();
  }
});

test("the files are those of the Python SDK", { skip }, async (t) => {
  const dir = scratch(t);
  const mount = await mounted("memory", dir);
  try {
    const store = new CtxbenchStore(mount.path);
    await store.put(["Ü/1"], "a.b", { t: "two\nlines\tend\\n" });
    const file = join(mount.path, "Ü%2F1/a%2Eb.json");
    assert.equal(readFileSync(file, "utf8"), '{"t":"two\n\tlines\tend\\\\n"}');
    writeFileSync(file, '{"t": "two\n\tlines\tend\\\\n",\n\t"n": [\n1]}\n');
    assert.deepEqual((await store.get(["Ü/1"], "a.b")).value, { t: "two\nlines\tend\\n", n: [1] });
  } finally {
    await mount.close();
  }
});

test("a graph keeps its memories in a mount", { skip }, async (t) => {
  const dir = scratch(t);
  const mount = await mounted("agent-memory", dir);
  try {
    const remember = async (state, { store }) => {
      await store.put(["users", "kim"], `note-${(await store.search(["users"])).length}`, { memory: "likes tea" });
      return { found: (await store.search(["users"], { query: "tea" })).length };
    };
    const graph = new StateGraph(Annotation.Root({ found: Annotation() }))
      .addNode("remember", remember)
      .addEdge(START, "remember")
      .addEdge("remember", END)
      .compile({ store: new CtxbenchStore(mount.path) });
    assert.equal((await graph.invoke({ found: 0 })).found, 1);
    assert.equal((await graph.invoke({ found: 0 })).found, 2);
  } finally {
    await mount.close();
  }
});

test("the example of the README runs", { skip }, async (t) => {
  const dir = scratch(t);
  directory(dir, "avm");
  assert.equal(await example(dir, "ctxbench/langgraph", {}), "diet\n");
});
