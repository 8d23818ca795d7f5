/** A value of an option of a command; `true` is an option without a value, and an array repeats the option. */
export type OptionValue = string | number | boolean | null | undefined | readonly (string | number)[];

/** Options of a command of `ctxbench`: `{agentId: "kim"}` is `--agent-id kim`. */
export type Options = Readonly<Record<string, OptionValue>>;

/** A tool refused a call. The message says why, and what to do; an agent can read it. */
export class ToolError extends Error {}

/** A command of `ctxbench` failed. */
export class CommandError extends Error {
  /** Its command line. */
  readonly command: readonly string[];
  /** Its exit code, or the signal that ended it; null: it still runs. */
  readonly code: number | string | null;
  /** What it wrote to standard error. */
  readonly stderr: string;
}

export interface RememberOptions {
  /** The file name, without `.md`; the first words of the text by default. If it exists, the new one gets a number. */
  title?: string;
  /** 0 to 1; 0.5 by default. */
  importance?: number;
  /** Words of letters, digits, `-` and `_`. */
  tags?: readonly string[];
  /** Shares the note with all agents under `/memory/shared/NAMESPACE/`; without it, the note is private. */
  namespace?: string;
  /** How long search and recall find the note: seconds, or a number with `s`, `m`, `h`, `d` or `w`; for ever by default. */
  ttl?: string | number;
}

export interface RecallOptions {
  /** The most `o200k` tokens of the answer, 64 to 1,000,000; 2,000 by default. */
  maxTokens?: number;
  /** By relevance, importance and recency (`balanced`, the default), newest first, or most important first. */
  strategy?: "balanced" | "recency" | "importance";
}

/** The memory of one agent: its private notes, and the shared notes of all agents of the store. */
export class AgentMemory {
  private constructor();
  readonly agent: string;
  /**
   * Stores a note, and returns its path in the memory, such as `/memory/private/akashi/rsi_rule.md`.
   * @throws {ToolError} if an argument is invalid
   * @throws {CommandError} if the server has ended, or cannot start
   */
  remember(text: string, options?: RememberOptions): Promise<string>;
  /**
   * The most useful notes for a question of at most 4,095 bytes, as Markdown; the first line says how many are relevant.
   * @throws {ToolError} if an argument is invalid
   * @throws {CommandError} if the server has ended, or cannot start
   */
  recall(query: string, options?: RecallOptions): Promise<string>;
}

/**
 * A store with the memories of several agents, in one directory. One process at a time can have it open. It serves one
 * agent at a time: a call for another agent than the one before mounts it again. It is closed by `close`, and when the
 * process has nothing left to do.
 */
export class Memory {
  /** `store` is a directory, created if missing; by default `ctxbench/memory` in `$XDG_DATA_HOME` or `~/.local/share`. */
  constructor(store?: string);
  readonly directory: string;
  /**
   * Opens the memory of an agent, which is created if it is missing.
   * @throws {CommandError} if the store cannot be mounted, or the agent's name is invalid
   */
  agentMemory(agent: string): Promise<AgentMemory>;
  /**
   * Unmounts the store, and waits until everything is written. A later call opens it again.
   * @throws {CommandError} if the last write failed
   */
  close(): Promise<void>;
}

/** Opens the memory of an agent in a store, as {@link Memory.agentMemory}. */
export function agentMemory(agent: string, options?: { store?: string }): Promise<AgentMemory>;

/** A mounted store. It ends with `close`, when this process has nothing left to do, and when this process is killed. */
export class Mount {
  private constructor();
  readonly kind: string;
  /** The absolute path of the mount. */
  readonly path: string;
  /**
   * Mounts, and waits until the mount can be used.
   * @param kind a store of `ctxbench mount`, such as `sqlite`, `agent-memory`, `s3`, `view` or `memory`
   * @param store a database file (`sqlite`, `agent-memory`), a bucket (`s3`), the source of a `view`; null for the default
   * @param path an empty directory
   * @param options more options of `ctxbench mount KIND`
   * @throws {CommandError} if it cannot be mounted; the error has the command's standard error
   */
  static open(kind: string, store: string | null, path: string, options?: Options): Promise<Mount>;
  /** Mounts for the time of `action`, and returns its result. */
  static use<T>(
    kind: string,
    store: string | null,
    path: string,
    options: Options,
    action: (mount: Mount) => T | Promise<T>,
  ): Promise<T>;
  /**
   * Unmounts, and waits until everything is flushed.
   * @throws {CommandError} if the unmount or the last flush failed, or the daemon has crashed. A mount that programs still
   *   use after some seconds ends all the same, and their open files get errors.
   */
  close(): Promise<void>;
}

/** A step of a plan. */
export interface Todo {
  id?: string;
  content: string;
  status: "pending" | "in_progress" | "completed";
  /** The step as Claude Code shows it while it is in progress. */
  activeForm?: string;
}

/**
 * File tools over `state.files`, an object from file names to texts, which an agent framework saves with its state. All
 * texts are those of `ctxbench mcp state`; a refused call throws a {@link ToolError}.
 */
export class StateFiles<State extends { files?: Record<string, string> }> {
  constructor(state: State);
  readonly state: State;
  /**
   * The part of a node's update that keeps the files: `return { messages: [...], ...tools.update() }`. A graph keeps what a
   * node returns, so a node that writes files must return them. It has all files of the state.
   */
  update(): { files: Record<string, string> };
  /** The files and their sizes in bytes. */
  lsFiles(): string;
  /** As {@link StateFiles.lsFiles}. */
  ls(): string;
  /** Creates or replaces a file, and returns a confirmation with its bytes and lines. */
  writeFile(filePath: string, content: string): string;
  /** Numbered lines, at most 256 KiB: from line `offset` (1 by default), `limit` of them (2,000 by default). */
  readFile(filePath: string, options?: { offset?: number; limit?: number }): string;
  /** Replaces the plan of at most 1,000 steps, the file `todos.json`. */
  writeTodos(todos: readonly Todo[]): string;
}

/** The answer of a run. */
export interface Report {
  /** The run directory. */
  run: string;
  /** The page for a browser. */
  page: string;
  /** The answer, as docs/report.schema.json describes it. */
  answer: Record<string, unknown>;
}

/**
 * Measures a suite (`ctxbench run`), and reports it. Progress goes to standard error. SIGINT stops the run in order.
 * @throws {CommandError} if the run failed, or was interrupted (exit code 130)
 */
export function run(suite?: string, options?: Options): Promise<Report>;

/**
 * Writes the report of a run again (`ctxbench report`), and returns its answer. It measures nothing.
 * @throws {CommandError} if the directory has no readable run
 */
export function report(runDir: string, options?: Options): Promise<Report>;

/**
 * The figures of a run: a row for each arm and kind of call in a cell (`cells.csv`). Columns that end in `_ns` are
 * nanoseconds; a figure that the run does not have is null. A missing or older report is written first.
 * @throws {CommandError} if the directory has no readable run
 */
export function cells(runDir: string): Promise<Record<string, string | number | null>[]>;
