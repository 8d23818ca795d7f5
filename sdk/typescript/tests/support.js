// What the tests share.

import { spawn } from "node:child_process";
import { accessSync, constants, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";

process.env.CTXBENCH_EMBEDDINGS = "none";

/** Why this user cannot mount here, or false. */
export const cannotMount = (() => {
  try {
    accessSync("/dev/fuse", constants.R_OK | constants.W_OK);
    return false;
  } catch {
    return "mounts need /dev/fuse";
  }
})();

/** Why a package cannot be used here, or false. */
export async function without(name) {
  try {
    await import(name);
    return false;
  } catch (error) {
    if (error.code !== "ERR_MODULE_NOT_FOUND") throw error;
    return `${name} is not installed`;
  }
}

export const program = process.env.CTXBENCH_BIN ?? "ctxbench";

/** The mount points below a directory. */
export function mountsUnder(directory) {
  const points = readFileSync("/proc/self/mounts", "utf8").split("\n").map((line) => line.split(" ")[1]);
  return points.filter((point) => point?.startsWith(directory + "/"));
}

/** A directory for a test, which is removed after it; a mount that is left in it is an error. */
export function scratch(test) {
  const path = mkdtempSync("/var/tmp/ctxbench-sdk-");
  test.after(() => {
    const left = mountsUnder(path);
    if (left.length > 0) throw new Error(`mounts were left behind: ${left}`);
    rmSync(path, { recursive: true });
  });
  return path;
}

export function directory(scratch, name) {
  const path = join(scratch, name);
  mkdirSync(path);
  return path;
}

/** Another Node that runs a module's text; the text imports the package as SDK. */
export function node(text, environment = {}) {
  const sdk = new URL("../index.js", import.meta.url).pathname;
  const module = text.replaceAll("SDK", JSON.stringify(sdk));
  const child = spawn(process.execPath, ["--input-type=module", "-e", module], {
    env: { ...process.env, ...environment },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const said = { output: "", errors: "" };
  child.stdout.on("data", (part) => (said.output += part));
  child.stderr.on("data", (part) => (said.errors += part));
  const ended = new Promise((resolve) => child.on("close", (code, signal) => resolve(code ?? signal)));
  return { child, said, ended };
}

/** Waits until something is so, for a minute at most. */
export async function until(what, isSo) {
  const deadline = Date.now() + 60_000;
  while (!(await isSo())) {
    if (Date.now() > deadline) throw new Error(`waited in vain for: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** A generator of numbers from 0 to 1 with a seed. */
export function generator(seed) {
  return () => {
    seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648;
    return seed / 2_147_483_648;
  };
}

/** Runs the README's example that imports a module of the package, in a directory, and returns what it prints. */
export async function example(directory, module, names) {
  const blocks = readFileSync(new URL("../README.md", import.meta.url), "utf8").split("```js\n").slice(1);
  const text = blocks.map((block) => block.split("```")[0]).find((block) => block.includes(`from "${module}"`));
  const { exports } = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8"));
  const entry = exports[module.replace("ctxbench", ".")].default;
  const [, imported] = /^import \{ (\w+) \} from/.exec(text);
  const sdk = { ...(await import("../index.js")), ...(await import(new URL(`../${entry}`, import.meta.url))) };
  const said = [];
  const given = { ...names, Mount: sdk.Mount, [imported]: sdk[imported], console: { log: (line) => said.push(line) } };
  const AsyncFunction = (async () => {}).constructor;
  const before = process.cwd();
  process.chdir(directory);
  try {
    await new AsyncFunction(...Object.keys(given), text.replace(/^import .*$/m, ""))(...Object.values(given));
  } finally {
    process.chdir(before);
  }
  return said.map((line) => `${typeof line === "string" ? line : JSON.stringify(line)}\n`).join("");
}
