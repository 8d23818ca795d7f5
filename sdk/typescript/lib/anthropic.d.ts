import type { betaMemoryTool } from "@anthropic-ai/sdk/helpers/beta/memory";

/**
 * Anthropic's memory tool (`memory_20250818`) over a directory, which Claude sees as `/memories`. Answers and errors are
 * those of Anthropic's documentation. No path leads out of the directory: a path with `..` (also URL-encoded) is refused,
 * and no link is followed, not even one that another process creates meanwhile. On an `agent-memory`, a view of
 * `/memories/:recall?query=NVDA+risk` recalls notes. An edit keeps the mode of a file, but not its extended attributes.
 * @throws {Error} if there is no such directory
 */
export function memoryTool(directory: string): ReturnType<typeof betaMemoryTool>;
