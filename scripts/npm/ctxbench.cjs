#!/usr/bin/env node
// Runs the program of this platform's package, which npm installs beside this one as an optional dependency.
"use strict";
const { spawn } = require("node:child_process");

const name = `ctxbench-${process.platform}-${process.arch}`;
let program;
try {
  program = require.resolve(`${name}/ctxbench`);
} catch {
  console.error(`ctxbench: the package ${name} is not installed: packages exist for linux-x64 and linux-arm64, and npm must not omit optional dependencies`);
  process.exit(1);
}
const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
// A terminal sends its SIGINT to both; the other signals reach this process alone.
process.on("SIGINT", () => {});
for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
child.on("error", (error) => {
  console.error(`ctxbench: ${program} does not start: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => {
  if (signal) {
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  } else {
    process.exit(code);
  }
});
