"""The store for LangGraph, beside the package's own ``InMemoryStore``."""

import asyncio
import random
import unittest
from importlib.util import find_spec
from pathlib import Path

from support import ScratchCase, needs_mounts

from ctxbench import Mount

LABELS = ["users", "kim", "a b", "..", "Ü/1", "x.json", "", "%", "langgraph", "prefs"]
KEYS = ["diet", "..", ".order", "a/b", "Ü", "", "%2E", "new\nline", "🍵"]
TEXTS = [
    "Tea",
    "two\nlines\twith\ttabs",
    "\\n\\\\n",
    "\n\t\n\n\t\t",
    'quoted "words"',
    "## /users/kim/diet.json",
    "\u2028\r\n",
]


@needs_mounts
@unittest.skipIf(find_spec("langgraph") is None, "langgraph is not installed")
class LanggraphTest(ScratchCase):
    def mount(self, kind: str = "agent-memory") -> Path:
        """A mount for the time of a test."""
        store = None if kind == "memory" else self.scratch / f"{kind}.db"
        mount = Mount(kind, store, self.directory(f"mnt-{kind}"))
        mount.__enter__()
        self.addCleanup(mount.__exit__)
        return mount.path

    def test_any_sequence_of_operations_answers_as_the_store_of_langgraph(self) -> None:
        from langgraph.store.base import PutOp
        from langgraph.store.memory import InMemoryStore

        from ctxbench.langgraph import CtxbenchStore

        for kind, seed in (("agent-memory", 1), ("sqlite", 2), ("memory", 3)):
            with self.subTest(kind):
                path = self.mount(kind) / "store"
                choose = random.Random(seed)
                theirs, ours = InMemoryStore(), CtxbenchStore(path)
                known: list = []
                for step in range(150):
                    ops = [self.operation(choose, known) for _ in range(choose.randint(1, 4))]
                    expected, got = answer(theirs, ops), answer(ours, ops)
                    self.assertEqual(got, expected, f"step {step} of seed {seed}: {ops}")
                    if isinstance(got, list):
                        known += [(op.namespace, op.key) for op in ops if isinstance(op, PutOp)]
                    if choose.random() < 0.1:
                        # Another process would see the same.
                        ours = CtxbenchStore(path)
                self.assertGreater(len(known), 20)

    @staticmethod
    def operation(choose: random.Random, known: list):
        """An operation. Their store lists each namespace that was asked for, so reads and deletes name a known one."""
        from langgraph.store.base import GetOp, ListNamespacesOp, MatchCondition, PutOp, SearchOp

        def path(most: int):
            return tuple(choose.choice(LABELS) for _ in range(choose.randint(0, most)))

        def value():
            part = choose.choice([choose.choice(TEXTS), choose.randint(-3, 3), 0.5, None, True, [1, [2]], {"Ä": []}])
            return {"text": choose.choice(TEXTS), "n": choose.randint(0, 3), "part": part}

        kind = choose.random()
        if kind < 0.4 or not known:
            return PutOp(path(3), choose.choice(KEYS), value())
        if kind < 0.5:
            return PutOp(*choose.choice(known), choose.choice([None, value()]))
        if kind < 0.65:
            return GetOp(choose.choice(known)[0], choose.choice(KEYS))
        limit, offset = choose.randint(-2, 12), choose.choice([0, 0, 1, 5, -1])
        if kind < 0.85:
            wanted = choose.choice(
                [
                    None,
                    {},
                    {"n": 1},
                    {"n": {"$gte": 1, "$lt": 3}},
                    {"n": {"$ne": 2}, "text": {"$eq": "Tea"}},
                    {"n": {"$gt": "0.5"}},
                    {"part": [1, [2]]},
                    {"part": {"Ä": []}},
                    {"part": {"$lte": 2}},
                    {"n": {"$in": [1]}},
                    {"$gt": 1},
                    {"missing": None},
                ]
            )
            prefix = choose.choice(known)[0]
            return SearchOp(prefix[: choose.randint(0, len(prefix))], wanted, limit, offset)
        conditions = [
            MatchCondition(
                choose.choice(["prefix", "suffix"]),
                tuple(choose.choice(["*", *LABELS]) for _ in range(choose.randint(0, 2))),
            )
            for _ in range(choose.randint(0, 2))
        ]
        return ListNamespacesOp(tuple(conditions), choose.choice([None, 0, 1, 2]), limit, offset)

    def test_a_get_and_a_delete_create_no_namespace_and_the_first_put_is_the_creation(self) -> None:
        from ctxbench.langgraph import CtxbenchStore

        store = CtxbenchStore(self.mount("sqlite"))
        self.assertIsNone(store.get(("users",), "kim"))
        store.delete(("users",), "kim")
        self.assertEqual(store.list_namespaces(), [])
        store.put(("users",), "kim", {"n": 1})
        first = store.get(("users",), "kim")
        store.put(("users",), "kim", {"n": 2})
        second = store.get(("users",), "kim")
        self.assertEqual(second.created_at, first.created_at)
        self.assertGreaterEqual(second.updated_at, second.created_at)
        self.assertEqual((self.scratch / "mnt-sqlite/users/kim.json").read_text(), '{"n": 2}')
        (self.scratch / "mnt-sqlite/users/by-hand.json").write_text('{\n\t"n": 3\n}')
        self.assertEqual([item.value["n"] for item in store.search(("users",))], [2, 3])

    def test_the_files_are_those_of_the_typescript_sdk(self) -> None:
        from ctxbench.langgraph import CtxbenchStore

        path = self.mount("memory")
        store = CtxbenchStore(path)
        store.put(("Ü/1",), "a.b", {"t": "two\nlines\tend\\n"})
        file = path / "Ü%2F1/a%2Eb.json"
        self.assertEqual(file.read_text(), '{"t": "two\n\tlines\tend\\\\n"}')
        file.write_text('{"t":"two\n\tlines\tend\\\\n",\n\t"n":[\n1]}\n')
        self.assertEqual(store.get(("Ü/1",), "a.b").value, {"t": "two\nlines\tend\\n", "n": [1]})

    def test_a_query_recalls_items_of_its_namespace_that_the_filter_allows(self) -> None:
        from ctxbench.langgraph import CtxbenchStore

        avm = self.mount()
        for root in (avm, avm / "memory"):
            with self.subTest(str(root)):
                store = CtxbenchStore(root)
                memories = {"one": "likes tea", "two": "likes coffee\nafter lunch", "three": "## /users/kim/one.json"}
                for number, (key, text) in enumerate(memories.items(), 1):
                    store.put(("users", "kim"), key, {"memory": text, "year": number})
                store.put(("users", "lee"), "four", {"memory": "likes tea and lunch"})
                (avm / "tea.md").write_text("Tea is a note, and not an item.\n")

                def found(prefix, query, **more):
                    return [(item.namespace[-1], item.key) for item in store.search(prefix, query=query, **more)]

                self.assertEqual(found(("users", "kim"), "tea"), [("kim", "one")])
                # The word after a newline is found.
                self.assertEqual(found(("users", "kim"), "after"), [("kim", "two")])
                self.assertEqual(sorted(found((), "lunch")), [("kim", "two"), ("lee", "four")])
                self.assertEqual(sorted(found(("users",), "likes?")), [("kim", "one"), ("kim", "two"), ("lee", "four")])
                self.assertEqual(found(("users",), "likes", filter={"year": {"$eq": 2}}), [("kim", "two")])
                both = found(("users",), "tea")
                pages = found(("users",), "tea", limit=1) + found(("users",), "tea", limit=1, offset=1)
                self.assertEqual((pages, len(both)), (both, 2))
                self.assertEqual(found(("users",), "zebra"), [])
                self.assertEqual(found(("missing",), "tea"), [])
                self.assertEqual(found(("users", "kim"), "tea " * 600), [("kim", "one")])
                self.assertEqual(asyncio.run(store.asearch(("users", "kim"), query="tea"))[0].value["year"], 1)

    def test_a_page_that_a_recall_does_not_reach_is_an_error(self) -> None:
        from unittest import mock

        from ctxbench import langgraph

        store = langgraph.CtxbenchStore(self.mount())
        for number in range(30):
            store.put(
                ("notes",), str(number), {"memory": f"tea number {number}: " + "it was hot and it was strong " * 9}
            )
        self.assertEqual(len(store.search(("notes",), query="tea", limit=40)), 30)
        with mock.patch.object(langgraph, "_RECALL_TOKENS", 200):
            self.assertEqual(len(store.search(("notes",), query="tea", limit=1)), 1)
            for page in ({"limit": 40}, {"limit": 1, "offset": 25}, {"filter": {"memory": {"$ne": ""}}, "limit": 20}):
                with self.subTest(page), self.assertRaisesRegex(NotImplementedError, "do not fit into a recall"):
                    store.search(("notes",), query="tea", **page)

    def test_what_the_store_does_not_offer_is_refused_and_puts_nothing(self) -> None:
        from langgraph.store.base import PutOp

        from ctxbench.langgraph import CtxbenchStore

        store = CtxbenchStore(self.mount("sqlite"))
        refused = [
            (NotImplementedError, "TTL is not supported", lambda: store.put(("a",), "k", {}, ttl=5)),
            (NotImplementedError, "do not expire", lambda: store.batch([PutOp(("a",), "k", {}, ttl=5)])),
            (NotImplementedError, "whole value", lambda: store.put(("a",), "k", {}, index=["x"])),
            (NotImplementedError, "whole value", lambda: store.put(("a",), "k", {}, index=False)),
            (NotImplementedError, "needs an agent-memory", lambda: store.search(("a",), query="tea")),
            (TypeError, "the key 1", lambda: store.put(("a",), "k", {"x": [{1: 2}]})),
            (TypeError, "not JSON serializable", lambda: store.put(("a",), "k", {"x": {1, 2}})),
            (ValueError, "not JSON compliant", lambda: store.put(("a",), "k", {"x": float("nan")})),
            (ValueError, "surrogates not allowed", lambda: store.put(("a",), "k", {"x": "\ud800"})),
            (ValueError, "surrogates not allowed", lambda: store.put(("a",), "\ud800", {})),
        ]
        for error, reason, call in refused:
            with self.subTest(reason), self.assertRaisesRegex(error, reason):
                call()
        with self.assertRaises(NotImplementedError):
            store.batch([PutOp(("a",), "k", {}), PutOp(("a",), "k2", {}, index=False)])
        self.assertEqual((store.list_namespaces(), store.search(())), ([], []))

    def test_no_link_leads_out_of_the_directory(self) -> None:
        from ctxbench.langgraph import CtxbenchStore

        path = self.mount("sqlite")
        outside = self.directory("outside")
        (outside / "k.json").write_text('{"secret": 1}')
        (path / "linked").symlink_to(outside)
        (path / "users").mkdir()
        (path / "users/k.json").symlink_to(outside / "k.json")
        store = CtxbenchStore(path)
        for call in (
            lambda: store.get(("linked",), "k"),
            lambda: store.put(("linked",), "k", {}),
            lambda: store.delete(("linked",), "k"),
            lambda: store.get(("users",), "k"),
        ):
            with self.assertRaises(OSError):
                call()
        self.assertEqual(store.search(()), [])
        store.put(("users",), "k", {"n": 1})
        self.assertEqual((outside / "k.json").read_text(), '{"secret": 1}')

    def test_the_example_of_the_readme_runs(self) -> None:
        self.directory("avm")
        self.assertEqual(self.run_example("ctxbench.langgraph", Mount=Mount), "diet\n")

    def test_a_graph_keeps_its_memories_in_a_mount(self) -> None:
        from typing_extensions import TypedDict

        from langgraph.graph import END, START, StateGraph
        from langgraph.store.base import BaseStore

        from ctxbench.langgraph import CtxbenchStore

        class State(TypedDict):
            found: int

        def remember(state: State, *, store: BaseStore) -> State:
            store.put(("users", "kim"), f"note-{len(store.search(('users',)))}", {"memory": "likes tea"})
            return {"found": len(store.search(("users",), query="tea"))}

        builder = StateGraph(State).add_node("remember", remember)
        builder = builder.add_edge(START, "remember").add_edge("remember", END)
        graph = builder.compile(store=CtxbenchStore(self.mount()))
        self.assertEqual([graph.invoke({"found": 0})["found"] for _ in range(2)], [1, 2])


def answer(store, ops) -> object:
    """The results of a batch without times, or the kind of its error."""
    from langgraph.store.base import Item

    def plain(part):
        return (part.namespace, part.key, part.value) if isinstance(part, Item) else part

    try:
        results = store.batch(ops)
    except (TypeError, ValueError) as error:
        return type(error)
    return [[plain(part) for part in result] if isinstance(result, list) else plain(result) for result in results]


if __name__ == "__main__":
    unittest.main()
