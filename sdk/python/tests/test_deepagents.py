"""The adapter for deepagents, over real mounts and with the real package."""

import unittest
from importlib.util import find_spec

from support import ScratchCase, needs_mounts

from ctxbench import Mount


@needs_mounts
@unittest.skipIf(find_spec("deepagents") is None, "deepagents is not installed")
class DeepagentsTest(ScratchCase):
    def test_the_file_operations_of_the_protocol_work_on_a_mount(self) -> None:
        from deepagents.backends.protocol import BackendProtocol

        from ctxbench.deepagents import backend

        path, store = self.directory("mnt"), self.scratch / "store.db"
        with Mount("sqlite", store, path) as mount:
            files = backend(mount)
            self.assertIsInstance(files, BackendProtocol)
            self.assertIsNone(files.write("/plan/july.md", "find meetings\nsave them\n").error)
            self.assertEqual((path / "plan/july.md").read_text(), "find meetings\nsave them\n")
            self.assertEqual(files.edit("/plan/july.md", "save", "keep").occurrences, 1)
            self.assertEqual([entry["path"] for entry in files.ls("/plan").entries], ["/plan/july.md"])
            found = files.grep("keep", "/").matches
            self.assertEqual([(match["path"], match["line"]) for match in found], [("/plan/july.md", 2)])
            self.assertEqual([match["path"] for match in files.glob("**/*.md", "/").matches], ["/plan/july.md"])
            (self.scratch / "outside").write_text("not the agent's")
            for outside in ("/../outside", str(self.scratch / "outside")):
                with self.subTest(outside):
                    try:
                        self.assertIsNotNone(files.read(outside).error)
                    except ValueError as refused:
                        self.assertIn("traversal", str(refused))
        with Mount("sqlite", store, path) as mount:
            self.assertIn("keep them", backend(mount).read("/plan/july.md").file_data["content"])
        with self.assertRaises(NotADirectoryError):
            backend(self.scratch / "missing")

    def test_an_agent_recalls_by_reading(self) -> None:
        from ctxbench.deepagents import backend

        with Mount("agent-memory", self.scratch / "avm.db", self.directory("avm"), agent_id="akashi") as mount:
            files = backend(mount)
            files.write("/memory/private/akashi/rsi_rule.md", "RSI > 70: exit\n")
            recalled = files.read("/:recall?query=RSI+exit&max_tokens=500")
            self.assertIsNone(recalled.error)
            self.assertIn("## /memory/private/akashi/rsi_rule.md", recalled.file_data["content"])


if __name__ == "__main__":
    unittest.main()
