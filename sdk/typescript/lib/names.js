// Any text as the name of a file, and back, as in the Python SDK.

/** A name of its own for the empty text; every other `%` of a name is followed by two digits. */
const EMPTY = "%";

/** Letters and digits of all scripts, `_`, `-` and `~` stay; the rest is URL-encoded, also `.` and `/`. */
export function encode(text) {
  if (!text.isWellFormed()) throw new TypeError(`${JSON.stringify(text)} cannot be encoded as UTF-8`);
  const hex = (byte) => "%" + byte.toString(16).toUpperCase().padStart(2, "0");
  return text.replace(/[^\p{L}\p{N}_~-]/gu, (found) => [...Buffer.from(found)].map(hex).join("")) || EMPTY;
}

/** The text of a name that `encode` has made. */
export function decode(name) {
  return name === EMPTY ? "" : decodeURIComponent(name);
}
