// Measurements and their results.

import { readFileSync, statSync } from "node:fs";
import { join, resolve } from "node:path";

import { flags, invoke } from "./command.js";

/** The columns of cells.csv that are text even where they look like numbers. */
const TEXT_COLUMNS = ["workload", "state", "metric", "arm", "verdict"];

/** The files that a run writes, and from which a report derives the others. */
const RECORDS = ["samples.jsonl", "cells.jsonl"];

/** Measures a suite (`ctxbench run`), and reports it. */
export async function run(suite, options = {}) {
  const words = flags({ suite, ...options });
  return parsed(await invoke(["run", "--format=json", ...words], { echoes: true }));
}

/** Writes the report of a run again (`ctxbench report`), and returns its answer. */
export async function report(runDir, options = {}) {
  return parsed(await invoke(["report", "--format=json", ...flags(options), "--", resolve(runDir)]));
}

function parsed(text) {
  const { run, report: page, answer } = JSON.parse(text);
  if (answer === undefined) throw new Error(`${run} is a fault run, which has no answer: read ${page}`);
  return { run, page, answer };
}

/** The figures of a run: a row for each arm and kind of call in a cell (`cells.csv`). */
export async function cells(runDir) {
  const directory = resolve(runDir);
  const table = join(directory, "cells.csv");
  const written = changed(table);
  const records = RECORDS.map((name) => changed(join(directory, name)) ?? 0n);
  if (written === null || records.some((record) => record > written)) await report(directory);
  const [names, ...rows] = csv(readFileSync(table, "utf8"));
  return rows.map((row) => Object.fromEntries(names.map((name, at) => [name, value(name, row[at])])));
}

/** When a file was last changed, in nanoseconds; null if it does not exist. */
function changed(path) {
  return statSync(path, { bigint: true, throwIfNoEntry: false })?.mtimeNs ?? null;
}

function value(name, field) {
  if (TEXT_COLUMNS.includes(name)) return name === "verdict" ? field || null : field;
  if (field === "") return null;
  return Number.isNaN(Number(field)) ? field : Number(field);
}

/** The rows of a table in CSV (RFC 4180). */
function csv(text) {
  const rows = [];
  let row = [];
  for (const [, quotedField, plain, end] of text.matchAll(/(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r?\n|$)/g)) {
    if (end === "" && row.length === 0 && !quotedField && !plain) break;
    row.push(quotedField?.replaceAll('""', '"') ?? plain);
    if (end === ",") continue;
    rows.push(row);
    row = [];
  }
  return rows;
}
