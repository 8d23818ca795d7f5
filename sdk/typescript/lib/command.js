// Runs the program `ctxbench`. What its commands print is parsed elsewhere.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { accessSync, closeSync, constants, fstatSync, mkdtempSync, openSync, readSync, rmSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";

import { CommandError } from "./errors.js";

/** The package of this machine's program, which npm installs as an optional dependency of this one. */
const PACKAGE = `ctxbench-${process.platform}-${process.arch}`;

/** The path of `ctxbench`: CTXBENCH_BIN, or the one on PATH, or the one of npm's package. Throws if there is none. */
export function program() {
  const named = process.env.CTXBENCH_BIN;
  const places = named ? [named] : (process.env.PATH ?? "").split(delimiter).map((place) => join(place, "ctxbench"));
  const found = places.find(isProgram) ?? (named ? undefined : installed());
  if (found === undefined) {
    const where = named
      ? `CTXBENCH_BIN names ${named}, which is not a program`
      : `ctxbench is not on PATH, and the package ${PACKAGE} is not installed`;
    throw new Error(`${where}: install it, or set CTXBENCH_BIN to the path of ctxbench`);
  }
  return found;
}

/** The program of npm's package, if it is installed. */
function installed() {
  try {
    return createRequire(import.meta.url).resolve(`${PACKAGE}/ctxbench`);
  } catch {
    return undefined;
  }
}

function isProgram(path) {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

/**
 * An object as options of a command: `{agentId: "kim"}` becomes `--agent-id=kim`. `true` gives an option without a value,
 * `undefined`, `null` and `false` give none, and an array repeats the option.
 */
export function flags(options) {
  return Object.entries(options).flatMap(([name, value]) => {
    const option = "--" + name.replaceAll("_", "-").replace(/[A-Z]/g, (letter) => "-" + letter.toLowerCase());
    const values = Array.isArray(value) ? value : [value];
    const given = values.filter((each) => each !== undefined && each !== null && each !== false);
    return given.map((each) => (each === true ? option : `${option}=${each}`));
  });
}

/**
 * Runs a command to its end, and returns its standard output. SIGINT is passed on to the command, unless it has a session
 * of its own. With `echoes`, its standard error is shown while it runs.
 */
export async function invoke(words, { echoes = false, ownSession = false } = {}) {
  const command = [program(), ...words];
  const child = spawn(command[0], words, { stdio: ["ignore", "pipe", "pipe"], detached: ownSession });
  const output = [];
  const errors = [];
  child.stdout.on("data", (part) => output.push(part));
  child.stderr.on("data", (part) => {
    errors.push(part);
    if (echoes) process.stderr.write(part);
  });
  const interrupt = () => child.kill("SIGINT");
  if (!ownSession) process.on("SIGINT", interrupt);
  try {
    const [code, signal] = await once(child, "close");
    if (code !== 0) throw new CommandError(command, code ?? signal, Buffer.concat(errors).toString());
  } finally {
    process.off("SIGINT", interrupt);
  }
  return Buffer.concat(output).toString();
}

/**
 * A child that serves until its input ends, which is also when this process ends. While nothing waits for it, it does not
 * keep this process running. Its standard error is in a file without a name.
 */
export class Daemon {
  #errors;
  #lines = [];
  #waiting = null;
  #rest = [];

  constructor(words) {
    this.command = [program(), ...words];
    const folder = mkdtempSync(join(tmpdir(), "ctxbench-"));
    this.#errors = openSync(join(folder, "stderr"), "w+");
    rmSync(folder, { recursive: true });
    // A session of its own: a terminal's Ctrl-C must not end it before this process closes it.
    this.child = spawn(this.command[0], words, { stdio: ["pipe", "pipe", this.#errors], detached: true });
    // Without listeners, errors of a pipe would end this process; the exit code says what matters.
    this.child.stdin.on("error", () => {});
    this.child.stdout.on("data", (part) => this.#read(part));
    this.ended = new Promise((resolve) => {
      const end = (code) => {
        this.code = code;
        this.#deliver(null);
        resolve();
      };
      this.child.once("exit", (code, signal) => setImmediate(() => end(code ?? signal)));
      this.child.once("error", () => end(-1));
    });
    this.#keep(false);
  }

  #keep(isKept) {
    for (const handle of [this.child, this.child.stdin, this.child.stdout]) isKept ? handle.ref() : handle.unref();
  }

  #read(part) {
    let from = 0;
    for (let at = part.indexOf(10); at >= 0; at = part.indexOf(10, from)) {
      this.#rest.push(part.subarray(from, at));
      from = at + 1;
      this.#deliver(Buffer.concat(this.#rest).toString());
      this.#rest = [];
    }
    this.#rest.push(part.subarray(from));
  }

  #deliver(line) {
    if (this.#waiting === null) this.#lines.push(line);
    else this.#waiting(line);
    this.#waiting = null;
  }

  /** The next line of its standard output; null once it has ended. For one caller at a time. */
  async line() {
    if (this.#lines.length > 0) return this.#lines.shift();
    if (this.code !== undefined) return null;
    this.#keep(true);
    try {
      return await new Promise((resolve) => (this.#waiting = resolve));
    } finally {
      this.#keep(false);
    }
  }

  /** Writes a line to its input. */
  send(line) {
    this.child.stdin.write(line + "\n");
  }

  /** Ends its input, later SIGTERM, and returns its exit code or signal; null if it still runs after `patience` ms. */
  async end(patience) {
    this.#keep(true);
    this.child.stdin.end();
    const timers = [setTimeout(() => this.child.kill("SIGTERM"), 5000)];
    const late = new Promise((resolve) => timers.push(setTimeout(resolve, patience)));
    await Promise.race([this.ended, late]);
    timers.forEach(clearTimeout);
    this.#keep(false);
    return this.code ?? null;
  }

  /** What it has written to standard error. */
  said() {
    const text = Buffer.alloc(fstatSync(this.#errors).size);
    readSync(this.#errors, text, 0, text.length, 0);
    return text.toString();
  }

  /** Its failure, as an error. */
  failure() {
    return new CommandError(this.command, this.code ?? null, this.said());
  }

  /** Gives its file back. */
  release() {
    closeSync(this.#errors);
  }
}

const closers = new Set();
let isListening = false;

/** Calls `close` when this process has nothing left to do. */
export function atEnd(close) {
  closers.add(close);
  if (isListening) return;
  isListening = true;
  process.on("beforeExit", () => {
    for (const each of [...closers]) {
      closers.delete(each);
      each().catch((error) => {
        console.error(error);
        process.exitCode = 1;
      });
    }
  });
}

/** Undoes `atEnd`. */
export function notAtEnd(close) {
  closers.delete(close);
}
