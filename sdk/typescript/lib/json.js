// What JSON can hold.

/** Refuses what JSON would change or leave out. */
export function checkJson(value) {
  if (value === null || ["string", "boolean"].includes(typeof value) || Number.isFinite(value)) return;
  if (Array.isArray(value)) return value.forEach(checkJson);
  if (typeof value === "object" && [Object.prototype, null].includes(Object.getPrototypeOf(value))) {
    // A property without a value is as good as none.
    return Object.values(value).filter((part) => part !== undefined).forEach(checkJson);
  }
  throw new TypeError(`a value has ${String(value)}, which JSON cannot hold`);
}
