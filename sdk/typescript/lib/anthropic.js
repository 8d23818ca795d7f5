// A directory of a mount as the memory of Claude.

import { randomUUID } from "node:crypto";
import { constants, realpathSync, statSync } from "node:fs";
import { chmod, lstat, mkdir, open, readdir, rename, rm, rmdir, unlink } from "node:fs/promises";

import { betaMemoryTool } from "@anthropic-ai/sdk/helpers/beta/memory";
import { ToolError } from "@anthropic-ai/sdk/lib/tools/ToolError";

/** The directory that Claude sees. */
const ROOT = "/memories";

/** The most lines of a file that a view shows. */
const LINES_MAX = 999_999;

const { O_RDONLY, O_WRONLY, O_CREAT, O_EXCL, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK } = constants;

export function memoryTool(directory) {
  const root = realpathSync(directory);
  if (!statSync(root).isDirectory()) throw new Error(`cannot serve ${root}: it is not a directory (mount it first)`);
  const handler = (command, run) => async (input) => {
    try {
      return await run(root, input);
    } catch (error) {
      if (error instanceof ToolError || error.code === undefined) throw error;
      throw new ToolError(`Error: ${command} of ${input.path ?? input.old_path} failed: ${error.code}`);
    }
  };
  const commands = { view, create, str_replace: strReplace, insert, delete: remove, rename: move };
  return betaMemoryTool(
    Object.fromEntries(Object.entries(commands).map(([command, run]) => [command, handler(command, run)])),
  );
}

async function view(root, { path, view_range: range }) {
  const content = await within(root, path, false, async (place) => {
    const status = await statusOf(place);
    if (status === null) throw missing(path);
    if (!status.isDirectory()) return read(place, path);
    const listed = await withDirectory(place, (directory) => listing(directory, path.replace(/\/+$/, ""), 2));
    const head = `Here're the files and directories up to 2 levels deep in ${path}`;
    return [`${head}, excluding hidden items and node_modules:`, `${size(status.size)}\t${path}`, ...listed];
  });
  if (Array.isArray(content)) return content.join("\n");
  const lines = content.split("\n");
  if (lines.length > LINES_MAX) throw new ToolError(`File ${path} exceeds maximum line limit of 999,999 lines.`);
  let [first, last] = range ?? [1, -1];
  if (last === -1 || last > lines.length) last = lines.length;
  if (!(first >= 1 && first <= last)) {
    throw new ToolError(
      `Error: Invalid \`view_range\` parameter: [${range.join(", ")}]. ` +
        `It should be within the range of lines of the file: [1, ${lines.length}]`,
    );
  }
  return `Here's the content of ${path} with line numbers:\n${numbered(lines, first, last)}`;
}

async function create(root, { path, file_text: text }) {
  await within(root, path, true, async (place) => {
    if ((await statusOf(place)) !== null) throw new ToolError(`Error: File ${path} already exists`);
    await write(place, text);
  });
  return `File created successfully at: ${path}`;
}

async function strReplace(root, { path, old_str: old, new_str: text }) {
  const [edited, line] = await within(root, path, false, async (place) => {
    const content = await read(place, path);
    const starts = [];
    // Occurrences may overlap.
    for (let at = old ? content.indexOf(old) : -1; at >= 0; at = content.indexOf(old, at + 1)) starts.push(at);
    if (starts.length === 0) {
      throw new ToolError(`No replacement was performed, old_str \`${old}\` did not appear verbatim in ${path}.`);
    }
    const lines = starts.map((start) => content.slice(0, start).split("\n").length);
    if (starts.length > 1) {
      throw new ToolError(
        `No replacement was performed. Multiple occurrences of old_str \`${old}\` in lines: ${lines.join(", ")}. ` +
          "Please ensure it is unique",
      );
    }
    const whole = content.slice(0, starts[0]) + text + content.slice(starts[0] + old.length);
    await replace(place, whole);
    return [whole.split("\n"), lines[0]];
  });
  const last = Math.min(line + text.split("\n").length + 1, edited.length);
  return `The memory file has been edited.\n${numbered(edited, Math.max(line - 2, 1), last)}`;
}

async function insert(root, { path, insert_line: number, insert_text: text }) {
  await within(root, path, false, async (place) => {
    const lines = (await read(place, path)).match(/[^\n]*\n|[^\n]+/g) ?? [];
    if (!(number >= 0 && number <= lines.length)) {
      throw new ToolError(
        `Error: Invalid \`insert_line\` parameter: ${number}. ` +
          `It should be within the range of lines of the file: [0, ${lines.length}]`,
      );
    }
    if (number > 0 && !lines[number - 1].endsWith("\n")) lines[number - 1] += "\n";
    lines.splice(number, 0, text.endsWith("\n") ? text : text + "\n");
    await replace(place, lines.join(""));
  });
  return `The file ${path} has been edited.`;
}

async function remove(root, { path }) {
  await within(root, path, false, async (place, isRoot) => {
    const status = await statusOf(place);
    if (status === null) throw new ToolError(`Error: The path ${path} does not exist`);
    if (isRoot) throw new ToolError(`Error: The directory ${ROOT} itself cannot be deleted`);
    if (status.isDirectory()) await removeTree(place);
    else await unlink(place);
  });
  return `Successfully deleted ${path}`;
}

/** Removes a directory with everything in it, and follows no link. */
async function removeTree(place) {
  await withDirectory(place, async (directory) => {
    for (const entry of await readdir(directory, { withFileTypes: true })) {
      const below = `${directory}/${entry.name}`;
      if (entry.isDirectory()) await removeTree(below);
      else await unlink(below);
    }
  });
  await rmdir(place);
}

async function move(root, { old_path: old, new_path: fresh }) {
  await within(root, old, false, async (place, isRoot) => {
    if ((await statusOf(place)) === null) throw new ToolError(`Error: The path ${old} does not exist`);
    if (isRoot) throw new ToolError(`Error: The directory ${ROOT} itself cannot be renamed`);
    await within(root, fresh, true, async (target) => {
      if ((await statusOf(target)) !== null) throw new ToolError(`Error: The destination ${fresh} already exists`);
      await rename(place, target);
    });
  });
  return `Successfully renamed ${old} to ${fresh}`;
}

/**
 * Calls an action with a place for a path, which is below a directory that is held open, so that no link on the way can
 * lead elsewhere.
 */
async function within(root, path, creates, action) {
  const names = namesOf(path);
  let directory = await open(root, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  try {
    for (const name of names.slice(0, -1)) {
      const place = placeIn(directory, name);
      if (creates) {
        await mkdir(place, 0o700).catch((error) => {
          if (error.code !== "EEXIST") throw error;
        });
      }
      const status = await statusOf(place);
      if (status === null) throw missing(path);
      if (!status.isDirectory()) {
        throw new ToolError(`Error: The path ${path} leads through ${name}, which is not a directory`);
      }
      const above = directory;
      directory = await open(place, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
      await above.close();
    }
    return await action(placeIn(directory, names.at(-1) ?? "."), names.length === 0);
  } finally {
    await directory.close();
  }
}

/** Calls an action with a directory that is held open. A link is refused. */
async function withDirectory(place, action) {
  const directory = await open(place, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  try {
    return await action(`/proc/self/fd/${directory.fd}`);
  } finally {
    await directory.close();
  }
}

function placeIn(directory, name) {
  return `/proc/self/fd/${directory.fd}/${name}`;
}

/** The names of a path below the root. */
function namesOf(path) {
  if (!(path === ROOT || path?.startsWith(`${ROOT}/`)) || path.includes("\0")) {
    throw new ToolError(`Error: The path ${path} is not in ${ROOT}. Please provide a valid path.`);
  }
  for (let text = path, before; text !== before; ) {
    if (text.split(/[/\\]/).some((part) => part === "." || part === "..")) {
      throw new ToolError(`Error: The path ${path} has . or .. in it. Please provide a valid path.`);
    }
    before = text;
    // Only what can be part of a traversal matters.
    text = text.replace(/%(25|2e|2f|5c)/gi, (code) => decodeURIComponent(code));
  }
  return path.split("/").filter((name) => name !== "").slice(1);
}

function missing(path) {
  return new ToolError(`Error: The path ${path} does not exist. Please provide a valid path.`);
}

/** The status of a place, without following a link; null if there is none. */
async function statusOf(place) {
  try {
    return await lstat(place);
  } catch (error) {
    if (error.code === "ENOENT" || error.code === "ENOTDIR") return null;
    throw error;
  }
}

/** The text of a regular file. */
async function read(place, path) {
  const status = await statusOf(place);
  if (status === null || status.isDirectory()) throw missing(path);
  if (!status.isFile()) {
    throw new ToolError(`Error: The path ${path} is a link or a special file, which this memory does not read`);
  }
  const file = await open(place, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(await file.readFile());
  } catch (error) {
    if (error.code !== "ERR_ENCODING_INVALID_ENCODED_DATA") throw error;
    throw new ToolError(`Error: The file ${path} is not a text in UTF-8`);
  } finally {
    await file.close();
  }
}

/** Writes a new file, or none. */
async function write(place, text) {
  if (!text.isWellFormed()) throw new ToolError("Error: the text cannot be encoded as UTF-8");
  const file = await open(place, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
  try {
    await file.writeFile(text);
  } catch (error) {
    await unlink(place);
    throw error;
  } finally {
    await file.close();
  }
}

/** Replaces the content of a file at once, and keeps its mode. */
async function replace(place, text) {
  const fresh = `${place.slice(0, place.lastIndexOf("/"))}/.new-${randomUUID()}`;
  await write(fresh, text);
  try {
    await chmod(fresh, (await lstat(place)).mode & 0o7777);
    await rename(fresh, place);
  } catch (error) {
    await rm(fresh);
    throw error;
  }
}

function numbered(lines, first, last) {
  const shown = lines.slice(first - 1, last);
  return shown.map((line, at) => `${String(first + at).padStart(6)}\t${line}`).join("\n");
}

/** The sizes and paths of what a directory has, by name. */
async function listing(directory, path, levels) {
  const lines = [];
  for (const name of (await readdir(directory)).sort()) {
    const place = `${directory}/${name}`;
    const status = await statusOf(place);
    if (name.startsWith(".") || name === "node_modules" || status === null) continue;
    if (status.isFile()) lines.push(`${size(status.size)}\t${path}/${name}`);
    if (!status.isDirectory()) continue;
    lines.push(`${size(status.size)}\t${path}/${name}/`);
    const below = (directory) => listing(directory, `${path}/${name}`, levels - 1);
    if (levels > 1) lines.push(...(await withDirectory(place, below)));
  }
  return lines;
}

/** A number of bytes as `ls -h` writes it. */
function size(count) {
  if (count < 1024) return `${count}B`;
  const power = Math.min(Math.floor(Math.log2(count) / 10), 3);
  return `${(count / 1024 ** power).toFixed(1)}${"BKMG"[power]}`;
}
