// An agent's memory, mounts and measurements, over the program `ctxbench`. The types are in index.d.ts.
//
// The package runs the program that CTXBENCH_BIN names, the `ctxbench` on PATH, or that of npm's package, and speaks its
// JSON and MCP.

export { CommandError, ToolError } from "./lib/errors.js";
export { AgentMemory, Memory, agentMemory } from "./lib/memory.js";
export { Mount } from "./lib/mount.js";
export { cells, report, run } from "./lib/runs.js";
export { StateFiles } from "./lib/state.js";
