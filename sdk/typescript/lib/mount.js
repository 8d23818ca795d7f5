// Mounts that end with a block, with `close`, or with this process.

import { readFileSync, realpathSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";

import { Daemon, atEnd, flags, invoke, notAtEnd } from "./command.js";
import { CommandError } from "./errors.js";

/** The option that names the place of a store's content. */
const STORE_OPTIONS = {
  sqlite: "db",
  "agent-memory": "db",
  s3: "bucket",
  view: "source",
  "llm-history": "logDb",
  "llm-generate": "save",
};

/** Milliseconds that a daemon may take to end after its mount has gone. */
const PATIENCE = 60_000;

/** Whether a mount is on a directory. The directory itself is not asked: a dead mount answers with errors. */
function isMounted(path) {
  const point = join(realpathSync(dirname(path)), basename(path));
  const escape = (each) => "\\" + each.charCodeAt(0).toString(8).padStart(3, "0");
  const written = point.replace(/[\\ \t\n]/g, escape);
  return readFileSync("/proc/self/mounts", "utf8").split("\n").some((line) => line.split(" ")[1] === written);
}

/** A mounted store. */
export class Mount {
  #daemon;
  #isClosed = false;

  constructor(daemon, kind, path) {
    this.#daemon = daemon;
    this.kind = kind;
    this.path = path;
    atEnd(this.close);
  }

  /** Mounts, and waits until the mount can be used. */
  static async open(kind, store, path, options = {}) {
    if ("daemon" in options) {
      throw new TypeError("a Mount ends with this process; use `ctxbench mount --daemon` for a longer one");
    }
    const hasStore = store !== null && store !== undefined;
    if (hasStore && !Object.hasOwn(STORE_OPTIONS, kind)) {
      throw new TypeError(`${kind} has no place for its content: give null in place of ${JSON.stringify(store)}`);
    }
    const given = hasStore ? { [STORE_OPTIONS[kind]]: store, ...options } : options;
    const at = resolve(path);
    const daemon = new Daemon(["mount", kind, ...flags(given), "--until-stdin-ends", at]);
    if ((await daemon.line()) !== "ready") {
      await daemon.end(PATIENCE);
      const failure = daemon.failure();
      daemon.release();
      throw failure;
    }
    return new Mount(daemon, kind, at);
  }

  /** Mounts for the time of `action`, and returns its result. */
  static async use(kind, store, path, options, action) {
    const mount = await Mount.open(kind, store, path, options);
    let result;
    try {
      result = await action(mount);
    } catch (error) {
      // The error of the action is the one that counts.
      await mount.close().catch((failure) => console.error(failure));
      throw error;
    }
    await mount.close();
    return result;
  }

  /** Unmounts, and waits until everything is flushed. */
  close = async () => {
    if (this.#isClosed) return;
    this.#isClosed = true;
    notAtEnd(this.close);
    const daemon = this.#daemon;
    let failure;
    try {
      // A mount that the user has ended is not there any more; that of a crashed daemon is.
      if (isMounted(this.path)) await invoke(["unmount", this.path], { ownSession: true });
    } catch (error) {
      if (!(error instanceof CommandError)) throw error;
      failure = new CommandError(error.command, error.code, `${error.stderr}\n${daemon.said()}`);
    } finally {
      if ((await daemon.end(PATIENCE)) !== 0) failure ??= daemon.failure();
      daemon.release();
    }
    if (failure) throw failure;
  };

  async [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
    await this.close();
  }
}
