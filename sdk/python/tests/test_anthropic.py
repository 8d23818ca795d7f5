"""Claude's memory tool, called as the package ``anthropic`` calls it."""

import asyncio
import json
import os
import unittest
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

from support import ScratchCase, needs_mounts

from ctxbench import Mount

MESSAGES = [{"role": "user", "content": "I like tea."}]

HEADER = "Here're the files and directories up to 2 levels deep in {}, excluding hidden items and node_modules:"


@needs_mounts
@unittest.skipIf(find_spec("anthropic") is None, "anthropic is not installed")
class AnthropicTest(ScratchCase):
    def setUp(self) -> None:
        super().setUp()
        from anthropic.lib.tools import ToolError

        from ctxbench.anthropic import MemoryTool

        self.error = ToolError
        mount = Mount("agent-memory", self.scratch / "claude.db", self.directory("mnt"), agent_id="claude")
        mount.__enter__()
        self.addCleanup(mount.__exit__)
        self.path: Path = mount.path / "memory/private/claude"
        self.tool = MemoryTool(self.path)

    def call(self, command: str, name: str = "", /, **arguments) -> str:
        if name:
            arguments["path"] = f"/memories/{name}"
        return self.tool.call({"command": command, **arguments})

    def refuses(self, text: str, command: str, *name: str, **arguments) -> None:
        with self.assertRaises(self.error) as refused:
            self.call(command, *name, **arguments)
        self.assertEqual(refused.exception.content, text)

    def test_each_command_answers_as_anthropics_documentation_says(self) -> None:
        self.assertEqual(self.tool.to_dict(), {"type": "memory_20250818", "name": "memory"})
        created = self.call("create", "notes/july.md", file_text="one\ntwo\nthree\n")
        self.assertEqual(created, "File created successfully at: /memories/notes/july.md")
        self.assertEqual((self.path / "notes/july.md").read_text(), "one\ntwo\nthree\n")
        self.assertEqual(
            self.call("view", "notes/july.md"),
            "Here's the content of /memories/notes/july.md with line numbers:\n"
            "     1\tone\n     2\ttwo\n     3\tthree\n     4\t",
        )
        part = self.call("view", "notes/july.md", view_range=[2, -1])
        self.assertEqual(part.split("\n")[1:], ["     2\ttwo", "     3\tthree", "     4\t"])
        self.assertEqual(self.call("view", "notes/july.md", view_range=[2, 2]).split("\n")[1:], ["     2\ttwo"])
        edited = self.call("str_replace", "notes/july.md", old_str="two", new_str="2\n2b")
        self.assertEqual(
            edited,
            "The memory file has been edited.\n     1\tone\n     2\t2\n     3\t2b\n     4\tthree\n     5\t",
        )
        inserted = self.call("insert", "notes/july.md", insert_line=0, insert_text="zero\n")
        self.assertEqual(inserted, "The file /memories/notes/july.md has been edited.")
        self.call("insert", "notes/july.md", insert_line=5, insert_text="four")
        self.assertEqual((self.path / "notes/july.md").read_text(), "zero\none\n2\n2b\nthree\nfour\n")
        moved = self.call("rename", old_path="/memories/notes", new_path="/memories/old/2026")
        self.assertEqual(moved, "Successfully renamed /memories/notes to /memories/old/2026")
        self.assertEqual(self.call("delete", "old/2026/july.md"), "Successfully deleted /memories/old/2026/july.md")
        self.assertEqual(self.call("delete", "old"), "Successfully deleted /memories/old")
        self.assertEqual(os.listdir(self.path), [])
        self.call("create", "a.md", file_text="x")
        self.assertEqual(self.tool.clear_all_memory(), "All memory cleared")
        self.assertEqual(os.listdir(self.path), [])

    def test_a_directory_lists_two_levels_with_sizes_and_without_hidden_names(self) -> None:
        for name, size in {"b.md": 1536, "a/c.md": 7, "a/b/d.md": 1, ".hidden": 1, "node_modules/x": 1}.items():
            (self.path / name).parent.mkdir(parents=True, exist_ok=True)
            (self.path / name).write_text("x" * size)
        (self.path / "link").symlink_to("/etc")
        shown = self.call("view", path="/memories").split("\n")
        self.assertEqual(shown[0], HEADER.format("/memories"))
        self.assertRegex(shown[1], r"^\d[^\t]*\t/memories$")
        self.assertEqual(
            [line.split("\t")[1] for line in shown[2:]],
            ["/memories/a/", "/memories/a/b/", "/memories/a/c.md", "/memories/b.md"],
        )
        self.assertIn("1.5K\t/memories/b.md", shown)
        self.assertIn("7B\t/memories/a/c.md", shown)
        self.assertEqual(self.call("view", "a/").split("\n")[0], HEADER.format("/memories/a/"))

    def test_each_error_is_that_of_anthropics_documentation(self) -> None:
        self.call("create", "a.md", file_text="aaa\nb\nb\n")
        (self.path / "dir").mkdir()
        missing = "Error: The path /memories/{} does not exist. Please provide a valid path."
        self.refuses(missing.format("x"), "view", "x")
        through = "Error: The path /memories/a.md/x leads through a.md, which is not a directory"
        self.refuses(through, "view", "a.md/x")
        self.refuses("Error: File /memories/a.md already exists", "create", "a.md", file_text="new")
        self.refuses("Error: File /memories/dir already exists", "create", "dir", file_text="new")
        for name in ("x", "dir"):
            self.refuses(missing.format(name), "str_replace", name, old_str="a", new_str="b")
            self.refuses(missing.format(name), "insert", name, insert_line=0, insert_text="b")
        absent = "No replacement was performed, old_str `{}` did not appear verbatim in /memories/a.md."
        self.refuses(absent.format("z"), "str_replace", "a.md", old_str="z", new_str="b")
        self.refuses(absent.format(""), "str_replace", "a.md", old_str="", new_str="b")
        several = "No replacement was performed. Multiple occurrences of old_str `{}` in lines: {}. "
        several += "Please ensure it is unique"
        self.refuses(several.format("b", "2, 3"), "str_replace", "a.md", old_str="b", new_str="c")
        self.refuses(several.format("aa", "1, 1"), "str_replace", "a.md", old_str="aa", new_str="c")
        for number in (-1, 4):
            self.refuses(
                f"Error: Invalid `insert_line` parameter: {number}. "
                "It should be within the range of lines of the file: [0, 3]",
                "insert",
                "a.md",
                insert_line=number,
                insert_text="x",
            )
        for lines in ([0, 1], [5, 6], [2, 1]):
            with self.assertRaisesRegex(self.error, "Invalid `view_range`"):
                self.call("view", "a.md", view_range=lines)
        self.refuses("Error: The path /memories/x does not exist", "delete", "x")
        paths = {"old_path": "/memories/x", "new_path": "/memories/y"}
        self.refuses("Error: The path /memories/x does not exist", "rename", **paths)
        paths = {"old_path": "/memories/a.md", "new_path": "/memories/dir"}
        self.refuses("Error: The destination /memories/dir already exists", "rename", **paths)
        for call in (
            lambda: self.call("delete", path="/memories"),
            lambda: self.call("rename", old_path="/memories", new_path="/memories/y"),
            lambda: self.call("rename", old_path="/memories/dir", new_path="/memories/dir/in/it"),
            lambda: self.call("create", "x" * 300, file_text=""),
        ):
            with self.assertRaises(self.error):
                call()
        (self.path / "binary").write_bytes(b"\xff\xfe")
        with self.assertRaisesRegex(self.error, "not a text in UTF-8"):
            self.call("view", "binary")
        (self.path / "long").write_text("\n" * 999_999)
        self.refuses("File /memories/long exceeds maximum line limit of 999,999 lines.", "view", "long")
        self.assertEqual((self.path / "a.md").read_text(), "aaa\nb\nb\n")

    def test_no_path_leads_out_of_the_directory(self) -> None:
        outside = self.directory("outside")
        (outside / "secret.md").write_text("secret")
        (self.path / "dir").mkdir()
        (self.path / "dir/linked").symlink_to(outside)
        (self.path / "linked.md").symlink_to(outside / "secret.md")
        (self.path / "dangling").symlink_to(outside / "new.md")
        paths = [
            "/etc/passwd",
            "/memories/../../../outside/secret.md",
            "/memories/dir/../../secret.md",
            "/memories/dir/..",
            "/memories/./a",
            "/memoriesx/a",
            "memories/a",
            "",
            str(outside / "secret.md"),
            "/memories/%2e%2e/secret.md",
            "/memories/%2E%2E%2Fsecret.md",
            "/memories/%252e%252e/secret.md",
            "/memories/..%5csecret.md",
            "/memories/..\\secret.md",
            "/memories/dir/linked/secret.md",
            "/memories/dir/linked/new/deep.md",
            "/memories/a\0b",
        ]
        for path in paths:
            for command, arguments in [
                ("view", {"path": path}),
                ("create", {"path": path, "file_text": "x"}),
                ("str_replace", {"path": path, "old_str": "secret", "new_str": "x"}),
                ("insert", {"path": path, "insert_line": 0, "insert_text": "x"}),
                ("delete", {"path": path}),
                ("rename", {"old_path": path, "new_path": "/memories/stolen"}),
                ("rename", {"old_path": "/memories/dir", "new_path": path}),
            ]:
                with self.subTest(command=command, path=path), self.assertRaises(self.error):
                    self.call(command, **arguments)
        for path in ("/memories/linked.md", "/memories/dangling"):
            for command, arguments in [
                ("view", {}),
                ("create", {"file_text": "x"}),
                ("str_replace", {"old_str": "secret", "new_str": "x"}),
                ("insert", {"insert_line": 0, "insert_text": "x"}),
            ]:
                with self.subTest(command=command, path=path), self.assertRaises(self.error):
                    self.call(command, path=path, **arguments)
        # A link itself is a name in the directory.
        self.assertIn("Successfully", self.call("delete", "linked.md"))
        self.assertIn("Successfully", self.call("delete", "dir"))
        self.assertEqual([file.read_text() for file in outside.iterdir()], ["secret"])

    def test_an_edit_keeps_attributes_and_line_ends(self) -> None:
        self.call("create", "rule.md", file_text="RSI > 70\r\nno newline at the end")
        os.setxattr(self.path / "rule.md", "user.ctx.importance", b"0.9")
        (self.path / "rule.md").chmod(0o640)
        self.call("str_replace", "rule.md", old_str="70", new_str="72")
        self.call("insert", "rule.md", insert_line=2, insert_text="last")
        self.assertEqual((self.path / "rule.md").read_bytes(), b"RSI > 72\r\nno newline at the end\nlast\n")
        self.assertEqual(os.getxattr(self.path / "rule.md", "user.ctx.importance"), b"0.9")
        self.assertEqual((self.path / "rule.md").stat().st_mode & 0o777, 0o640)
        self.assertEqual(os.listdir(self.path), ["rule.md"])

    def test_claude_recalls_by_viewing(self) -> None:
        self.call("create", "rsi_rule.md", file_text="RSI > 70: exit\n")
        recalled = self.call("view", ":recall?query=RSI+exit%2Fentry&max_tokens=500")
        self.assertIn("rsi_rule.md", recalled)
        self.assertIn("RSI > 70: exit", recalled)

    def test_the_packages_tool_runner_executes_the_commands_of_a_model(self) -> None:
        uses = [
            {"command": "create", "path": "/memories/a.md", "file_text": "likes tea"},
            {"command": "view", "path": "/memories/../b.md"},
        ]
        client, asked = self.model(uses)
        runner = client.beta.messages.tool_runner(model="m", max_tokens=100, messages=MESSAGES, tools=[self.tool])
        self.assertEqual(runner.until_done().content[0].text, "done")
        self.assertEqual(asked[0]["tools"], [{"type": "memory_20250818", "name": "memory"}])
        results = [request["messages"][-1]["content"][0] for request in asked[1:]]
        self.assertEqual(results[0]["content"], "File created successfully at: /memories/a.md")
        self.assertTrue(results[1]["is_error"])
        self.assertIn("has . or .. in it", str(results[1]["content"]))
        self.assertEqual((self.path / "a.md").read_text(), "likes tea")

    def test_the_tool_for_the_asynchronous_client_answers_the_same(self) -> None:
        from ctxbench.anthropic import AsyncMemoryTool

        async def check() -> None:
            tool = AsyncMemoryTool(self.path)
            self.assertEqual(tool.to_dict(), self.tool.to_dict())
            await tool.call({"command": "create", "path": "/memories/a.md", "file_text": "x"})
            view = {"command": "view", "path": "/memories/a.md"}
            self.assertEqual(await tool.call(view), self.tool.call(view))
            with self.assertRaises(self.error):
                await tool.call({"command": "view", "path": "/memories/.."})
            await tool.clear_all_memory()
            self.assertEqual(os.listdir(self.path), [])

        asyncio.run(check())

    def test_the_example_of_the_readme_runs(self) -> None:
        self.directory("avm")
        client, asked = self.model([{"command": "view", "path": "/memories"}])
        said = self.run_example("ctxbench.anthropic", Mount=Mount, client=client, model="m", messages=MESSAGES)
        self.assertIn("done", said)
        self.assertIn(HEADER.format("/memories"), str(asked[1]["messages"][-1]["content"]))

    def model(self, uses: list):
        """A client of a model that uses the memory tool so, one use an answer, and the requests that the model gets."""
        import anthropic

        asked: list = []

        class Model(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                step = len(asked) - 1
                content: list = [{"type": "text", "text": "done"}]
                if step < len(uses):
                    content = [{"type": "tool_use", "id": f"toolu_{step}", "name": "memory", "input": uses[step]}]
                reason = "tool_use" if step < len(uses) else "end_turn"
                usage = {"input_tokens": 1, "output_tokens": 1}
                message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": content}
                body = json.dumps({**message, "stop_reason": reason, "stop_sequence": None, "usage": usage}).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        server = HTTPServer(("127.0.0.1", 0), Model)
        Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        client = anthropic.Anthropic(api_key="none", base_url=f"http://127.0.0.1:{server.server_port}")
        self.addCleanup(client.close)
        return client, asked


if __name__ == "__main__":
    unittest.main()
