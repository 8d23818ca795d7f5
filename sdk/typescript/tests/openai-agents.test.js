// Sessions of the OpenAI Agents SDK in a mount, beside the package's own MemorySession.

import assert from "node:assert/strict";
import { appendFileSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { Mount } from "../index.js";
import { cannotMount, directory, example, generator, scratch, without } from "./support.js";

const skip = cannotMount || (await without("@openai/agents"));
const { Agent, MemorySession, Usage, run, setTracingDisabled } = skip ? {} : await import("@openai/agents");
const { MountSession } = skip ? {} : await import("../lib/openai-agents.js");

test("any sequence of operations answers as the package's session", { skip }, async (t) => {
  const dir = scratch(t);
  await Mount.use("sqlite", join(dir, "s.db"), directory(dir, "mnt"), {}, async (mount) => {
    const random = generator(5);
    const choose = (list) => list[Math.floor(random() * list.length)];
    const names = ["kim", "../kim", "", "Ü/%2F"];
    const theirs = Object.fromEntries(names.map((name) => [name, new MemorySession({ sessionId: name })]));
    const ours = Object.fromEntries(names.map((name) => [name, new MountSession(name, mount.path)]));
    for (let step = 0; step < 200; step += 1) {
      const name = choose(names);
      const items = Array.from({ length: Math.floor(random() * 4) }, () => ({
        role: "user",
        content: choose(["", "two\nlines", "Ü🍵\u2028"]),
      }));
      const limit = choose([undefined, -1, 0, 1, 3, 100]);
      const kind = choose(["add", "add", "get", "get", "pop", random() < 0.2 ? "clear" : "add"]);
      const call = {
        add: (session) => session.addItems(items),
        get: (session) => session.getItems(limit),
        pop: (session) => session.popItem(),
        clear: (session) => session.clearSession(),
      }[kind];
      assert.deepEqual(await call(ours[name]), await call(theirs[name]), `step ${step}: ${kind} ${name} ${limit}`);
    }
    for (const name of names) {
      assert.equal(await ours[name].getSessionId(), name);
      assert.deepEqual(await new MountSession(name, mount.path).getItems(), await theirs[name].getItems());
    }
  });
});

test("a half-written item is left out, a damaged one is an error, and adds at the same time lose nothing", { skip }, async (t) => {
  const dir = scratch(t);
  await Mount.use("sqlite", join(dir, "s.db"), directory(dir, "mnt"), {}, async (mount) => {
    const session = new MountSession("kim", mount.path);
    const file = join(mount.path, "kim.jsonl");
    const [one, two] = ["one", "two"].map((content) => ({ role: "user", content }));
    await session.addItems([one]);
    appendFileSync(file, '{"role": "us');
    assert.deepEqual(await session.getItems(), [one]);
    await session.addItems([two]);
    assert.deepEqual(await session.getItems(), [one, two]);
    await assert.rejects(session.addItems([one, { data: new Uint8Array(2) }]), /JSON cannot hold/);
    assert.deepEqual(await session.getItems(), [one, two]);
    writeFileSync(file, "damaged\n");
    await assert.rejects(session.getItems(), /kim.jsonl is not a session: a line is not JSON/);
    await assert.rejects(session.popItem(), /is not a session/);
    assert.equal(readFileSync(file, "utf8"), "damaged\n");
    await session.clearSession();
    const sessions = Array.from({ length: 8 }, () => new MountSession("kim", mount.path));
    await Promise.all(Array.from({ length: 40 }, (_, at) => sessions[at % 8].addItems([{ role: "user", content: `${at}` }])));
    const found = (await session.getItems()).map((item) => Number(item.content));
    assert.deepEqual(found.sort((a, b) => a - b), Array.from({ length: 40 }, (_, at) => at));
  });
});

/** A model without a network, which keeps what it was asked. */
class Parrot {
  asked = [];

  async getResponse({ input }) {
    this.asked.push(structuredClone(input));
    const content = [{ type: "output_text", text: `answer ${this.asked.length}` }];
    return { output: [{ type: "message", role: "assistant", status: "completed", content }], usage: new Usage() };
  }
}

test("a run continues the conversation after a new mount", { skip }, async (t) => {
  setTracingDisabled(true);
  const dir = scratch(t);
  const parrot = new Parrot();
  const agent = new Agent({ name: "parrot", model: parrot });
  const path = directory(dir, "mnt");
  for (const question of ["My name is Kim.", "Who am I?"]) {
    await Mount.use("sqlite", join(dir, "s.db"), path, {}, async (mount) => {
      await run(agent, question, { session: new MountSession("kim", mount.path) });
    });
  }
  const [first, second, third] = parrot.asked[1];
  assert.deepEqual([first.content, second.content[0].text, third.content], ["My name is Kim.", "answer 1", "Who am I?"]);
});

test("the example of the README runs", { skip }, async (t) => {
  setTracingDisabled(true);
  const dir = scratch(t);
  directory(dir, "sessions");
  const agent = new Agent({ name: "parrot", model: new Parrot() });
  for (const number of [1, 2]) assert.equal(await example(dir, "ctxbench/openai-agents", { run, agent }), `answer ${number}\n`);
});
