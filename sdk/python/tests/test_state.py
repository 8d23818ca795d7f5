"""The tools over an agent's state, compared with those of the program."""

import json
import operator
import unittest
import warnings
from importlib.util import find_spec
from typing import Annotated, TypedDict

from support import ScratchCase

from ctxbench import StateFiles, ToolError
from ctxbench._server import Server

STEP = {"id": "1", "content": "Query “July”", "status": "pending"}

#: Calls in their order, with arguments; the texts of both implementations must be equal.
CALLS = [
    ("ls_files", {}),
    ("write_file", {"file_path": "b/é.json", "content": '{"a": "é"}\n'}),
    ("write_file", {"file_path": "a.txt", "content": ""}),
    ("write_file", {"file_path": "long.txt", "content": "line\n" * 4500}),
    ("write_file", {"file_path": "wide.txt", "content": "é" * 300_000}),
    ("write_file", {"file_path": "middle.txt", "content": "1\n" + "é" * 300_000 + "\n3"}),
    ("write_file", {"file_path": "exact.txt", "content": "x" * ((256 << 10) - 48) + "\n" + "y" * 100}),
    ("write_file", {"file_path": "pages.txt", "content": ("x" * 400 + "\n") * 1000}),
    ("ls_files", {}),
    ("ls", {}),
    ("read_file", {"file_path": "b/é.json"}),
    ("read_file", {"file_path": "a.txt"}),
    ("read_file", {"file_path": "long.txt"}),
    ("read_file", {"file_path": "long.txt", "offset": 4400, "limit": 50}),
    ("read_file", {"file_path": "long.txt", "offset": 0, "limit": 1}),
    ("read_file", {"file_path": "long.txt", "offset": 4502}),
    ("read_file", {"file_path": "long.txt", "limit": 0}),
    ("read_file", {"file_path": "long.txt", "limit": -1}),
    ("read_file", {"file_path": "wide.txt"}),
    ("read_file", {"file_path": "middle.txt"}),
    ("read_file", {"file_path": "middle.txt", "offset": 2}),
    ("read_file", {"file_path": "middle.txt", "offset": 2, "limit": 1}),
    ("read_file", {"file_path": "middle.txt", "offset": 3}),
    ("read_file", {"file_path": "exact.txt"}),
    ("read_file", {"file_path": "pages.txt"}),
    ("read_file", {"file_path": "missing"}),
    ("write_file", {"file_path": "", "content": "x"}),
    ("write_file", {"file_path": " \u00a0", "content": "x"}),
    ("write_file", {"file_path": "\x1c", "content": "x"}),
    ("write_file", {"file_path": 'a\n"\\\t\r', "content": "x"}),
    ("write_file", {"file_path": "nul\0", "content": "x"}),
    ("write_todos", {"todos": [STEP, {"content": "Save\n\t\x01", "status": "in_progress"}]}),
    ("read_file", {"file_path": "todos.json"}),
    ("write_todos", {"todos": [STEP, STEP]}),
    ("write_todos", {"todos": [{"content": " ", "status": "pending"}]}),
    ("write_todos", {"todos": [{"content": "x", "status": "done"}]}),
    ("write_todos", {"todos": [{"content": "x"}]}),
    ("write_todos", {"todos": [{"status": "pending"}]}),
    ("write_todos", {"todos": [{**STEP, "due": "now"}]}),
    ("write_todos", {"todos": [STEP | {"id": None}] if hasattr(dict, "__or__") else [STEP]}),
    ("write_todos", {"todos": [{"content": "x", "status": "pending"}] * 1001}),
    ("read_file", {"file_path": "todos.json"}),
    ("write_todos", {"todos": [{"activeForm": "Saving", "content": "Save", "status": "in_progress"}]}),
    ("read_file", {"file_path": "todos.json"}),
    ("write_todos", {"todos": []}),
    ("read_file", {"file_path": "todos.json"}),
    ("ls_files", {}),
]


class StateFilesTest(unittest.TestCase):
    def test_answers_and_refusals_are_those_of_the_program(self) -> None:
        server = Server("state")
        self.addCleanup(server.close)
        tools = StateFiles({})
        for tool, arguments in CALLS:
            with self.subTest(tool=tool, arguments=str(arguments)[:80]):
                self.assertEqual(
                    answer(lambda: getattr(tools, tool)(**arguments)), answer(lambda: server.call(tool, arguments))
                )

    def test_files_are_in_the_state_of_the_framework(self) -> None:
        state = {"messages": ["kept"]}
        tools = StateFiles(state)
        rows = json.dumps([{"meeting": "All Hands"}])
        self.assertIn("✅ Saved july.json", tools.write_file("july.json", rows))
        self.assertEqual(state, {"messages": ["kept"], "files": {"july.json": rows}})
        state["files"] = {"october.json": "[]"}
        self.assertIn("october.json (2 bytes)", tools.ls_files())
        self.assertNotIn("july.json", tools.ls())
        tools.write_todos([STEP])
        self.assertEqual(json.loads(state["files"]["todos.json"]), [STEP])

    def test_source_5s_calls_save_results_and_load_them_when_needed(self) -> None:
        state = {"messages": []}
        tools = StateFiles(state)
        ls_files, write_file, read_file, write_todos = (
            tools.ls_files,
            tools.write_file,
            tools.read_file,
            tools.write_todos,
        )
        query_results = {"status": "success", "results": [{"meeting_title": f"All Hands {day}"} for day in range(500)]}
        text = json.dumps(query_results)
        write_todos(
            [
                {"id": "1", "content": "Query July meetings", "status": "completed"},
                {"id": "2", "content": "Save July to file", "status": "in_progress"},
            ]
        )
        said = write_file("july_meetings.json", json.dumps(query_results))
        self.assertEqual(said, f"✅ Saved july_meetings.json ({len(text)} bytes, 1 lines)")
        july_data = read_file("july_meetings.json")
        self.assertEqual(july_data, f"=== july_meetings.json (lines 1-1 of 1) ===\n     1|{text}")
        self.assertEqual(json.loads(july_data.split("|", 1)[1]), query_results)
        write_file("large_file.json", json.dumps(query_results, indent=2))
        part = read_file("large_file.json", offset=100, limit=50)
        self.assertRegex(part, r"^=== large_file.json \(lines 100-149 of \d+\) ===\n   100\|")
        self.assertIn(f"  july_meetings.json ({len(text)} bytes)", ls_files())
        self.assertEqual(json.loads(state["files"]["july_meetings.json"]), query_results)
        self.assertEqual(state["messages"], [])

    def test_a_result_of_one_line_that_is_longer_than_a_read_is_shown_from_its_beginning(self) -> None:
        tools = StateFiles({})
        text = json.dumps([{"meeting_title": f"All Hands {day}"} for day in range(12_000)])
        self.assertGreater(len(text), 400_000)
        tools.write_file("july.json", text)
        for options in ({}, {"limit": 1}):
            header, line, note = tools.read_file("july.json", **options).split("\n")
            self.assertGreater(len(line), 262_000)
            self.assertTrue(text.startswith(line[len("     1|") :]), line[:80])
            self.assertEqual(len(f"{header}\n{line}".encode()), 256 << 10)
            self.assertIn("within a line, whose rest no read shows; write it as several lines", note)

    def test_a_value_that_is_not_text_is_refused_and_changes_nothing(self) -> None:
        tools = StateFiles({})
        for content in ([1], None, b"x"):
            with self.assertRaisesRegex(TypeError, "content must be a text"):
                tools.write_file("a", content)
        with self.assertRaisesRegex(ToolError, "not text"):
            tools.write_file("a", "\ud800")
        for todos in ("plan", {"content": "x"}, [1]):
            with self.assertRaises(TypeError):
                tools.write_todos(todos)
        self.assertEqual(tools.state, {"files": {}})
        for files in ([], {"a": 1}):
            with self.assertRaisesRegex(TypeError, "must be a dictionary"):
                StateFiles({"files": files})
        of_deepagents = {"/plan.md": {"content": "find", "encoding": "utf-8"}}
        with self.assertRaisesRegex(TypeError, "'/plan.md'.*is a file of deepagents"):
            StateFiles({"files": of_deepagents})


@unittest.skipIf(find_spec("langgraph") is None, "langgraph is not installed")
class LanggraphStateTest(ScratchCase):
    """Nodes of a graph, which get a copy of its state."""

    def saved(self, schema, write, given):
        """The files that a later run of the graph reads, from the checkpoint."""
        from langgraph.checkpoint.memory import InMemorySaver
        from langgraph.graph import START, StateGraph

        saver = InMemorySaver()
        thread = {"configurable": {"thread_id": "1"}}
        writer = StateGraph(schema).add_node("write", write).add_edge(START, "write").compile(saver)
        writer.invoke({"messages": [], **given}, thread)
        seen = []

        def read(state):
            seen.append(dict(StateFiles(state).state["files"]))
            return {"messages": []}

        reader = StateGraph(schema).add_node("read", read).add_edge(START, "read").compile(saver)
        reader.invoke({"messages": []}, thread)
        return seen[0]

    def schemas(self):
        class Merged(TypedDict):
            messages: list
            files: Annotated[dict, operator.or_]

        class Replaced(TypedDict):
            messages: list
            files: dict

        return Merged, Replaced

    def test_a_later_run_reads_what_a_node_returns_as_an_update(self) -> None:
        def node(state):
            tools = StateFiles(state)
            tools.write_file("july.json", "[1]")
            return {"messages": ["saved"], **tools.update()}

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for schema in self.schemas():
                for before in ({}, {"files": {}}, {"files": {"june.json": "[]"}}):
                    with self.subTest(schema=schema.__name__, before=before):
                        expected = {**before.get("files", {}), "july.json": "[1]"}
                        self.assertEqual(self.saved(schema, node, before), expected)

    def test_a_node_that_does_not_return_its_files_is_warned(self) -> None:
        def node(state):
            StateFiles(state).write_file("july.json", "[1]")
            return {"messages": ["saved"]}

        for schema in self.schemas():
            with self.subTest(schema=schema.__name__), self.assertWarnsRegex(RuntimeWarning, r"\*\*tools.update\(\)"):
                self.saved(schema, node, {"files": {}})

    def test_a_graph_without_files_in_its_state_is_refused_and_a_dictionary_of_ones_own_is_not(self) -> None:
        class Without(TypedDict):
            messages: list

        def node(state):
            with self.assertRaisesRegex(TypeError, "files: Annotated"):
                StateFiles(state)
            own = {"files": {}}
            StateFiles(own).write_file("a", "b")
            StateFiles({}).write_file("a", "b")
            return {"messages": [own["files"]["a"]]}

        from langgraph.graph import START, StateGraph

        graph = StateGraph(Without).add_node("node", node).add_edge(START, "node").compile()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.assertEqual(graph.invoke({"messages": []}), {"messages": ["b"]})

    def test_nodes_that_run_at_once_keep_each_others_files(self) -> None:
        from langgraph.graph import START, StateGraph

        def node(name):
            def write(state):
                tools = StateFiles(state)
                tools.write_file(name, "new")
                return tools.update()

            return write

        graph = StateGraph(self.schemas()[0])
        for name in ("a", "b"):
            graph.add_node(name, node(name)).add_edge(START, name)
        files = {"a": "old", "b": "old"}
        self.assertEqual(graph.compile().invoke({"messages": [], "files": files})["files"], {"a": "new", "b": "new"})

    def test_the_example_of_the_readme(self) -> None:
        self.assertEqual(self.run_example("operator", StateFiles=StateFiles), "{'july.json': '[1]\\n'}\n")


def answer(call) -> str:
    try:
        return call()
    except ToolError as error:
        return f"refused: {error}"


if __name__ == "__main__":
    unittest.main()
