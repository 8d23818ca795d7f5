// The errors of the package.

/** A tool refused a call. The message says why, and what to do; an agent can read it. */
export class ToolError extends Error {
  name = "ToolError";
}

/** A command of `ctxbench` failed: its command line, its exit code or signal (null: it still runs), its standard error. */
export class CommandError extends Error {
  name = "CommandError";

  constructor(command, code, stderr) {
    const words = command.slice(1, 3).join(" ");
    const end = code === null ? "is still running" : `failed with ${typeof code === "number" ? "exit code " : ""}${code}`;
    super(`ctxbench ${words} ${end}: ${stderr.trim() || "it wrote no error"}`);
    this.command = command;
    this.code = code;
    this.stderr = stderr.trim();
  }
}
