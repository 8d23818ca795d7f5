import { BaseStore, type Operation, type OperationResults } from "@langchain/langgraph";

/**
 * Items as files: the value of `["users", "kim"]` and `"diet"` is in `users/kim/diet.json`. The Python SDK has the same
 * files. Operations without a query answer as LangGraph's `InMemoryStore` does, except that a delete creates no
 * namespace. A query recalls items, and needs an `agent-memory`: it finds only relevant items, in the order of
 * `ctxbench recall` and without scores. The argument `index` of a put is refused.
 */
export class CtxbenchStore extends BaseStore {
  /**
   * Keeps the items in a directory, which is created if its parent exists. On an `agent-memory`, other agents find the
   * items, unless the directory is in `/memory/private/AGENT`.
   */
  constructor(directory: string);
  /**
   * Executes operations. Reads see the store as it was before the batch; of several puts of an item, the last counts.
   * @throws {TypeError} if a value has a part that JSON cannot hold; nothing was put
   * @throws {Error} if a put has `index`, a query is not in an `agent-memory`, or a file cannot be read or written
   */
  batch<Op extends Operation[]>(operations: Op): Promise<OperationResults<Op>>;
}
