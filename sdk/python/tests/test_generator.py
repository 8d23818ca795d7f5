"""Generators in Python, called by a mount and by hand."""

import json
import os
import subprocess
import sys
import unittest

from support import SDK, ScratchCase, needs_mounts

from ctxbench import Mount

#: A recording: nothing is asked of it.
CASSETTE = SDK.parent.parent / "backends" / "models" / "cassettes" / "run.jsonl"

SCRIPT = """
from ctxbench.generator import BaseContentGenerator, run

class Index(BaseContentGenerator):
    def generator_name(self):
        return "index"

    def generate(self, path, node, fs_structure):
        if path.endswith("bad.md"):
            return 7
        lines = [f"{path}: {self.prompt}, {self.about}, {node.xattrs['user.llmfs.prompt']}, {node.is_waiting}"]
        for name, other in fs_structure.items():
            lines.append(f"{name} {other.type} {other.attrs['st_size']} {other.content!r}")
        return "\\n".join(lines) + "\\n"

run(Index())
"""


class GeneratorTest(ScratchCase):
    def script(self) -> str:
        script = self.scratch / "index.py"
        script.write_text(f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(SDK)!r})\n{SCRIPT}")
        script.chmod(0o755)
        return str(script)

    @needs_mounts
    def test_a_mount_gives_it_the_tree_and_the_files_that_it_has_written(self) -> None:
        self.script()
        definition = self.scratch / "index.toml"
        definition.write_text("name = 'index'\ncommand = ['./index.py']\ninput = 'json'\nfiles = ['*.md']\n")
        tree = self.scratch / "tree.json"
        files = [{"path": f"docs/{name}.md", "kind": "file", "about": name} for name in ("one", "two", "bad")]
        link = {"path": "latest", "kind": "symlink", "target": "docs/two.md"}
        tree.write_text(json.dumps({"entries": [*files, link]}))
        options = {"tree": tree, "generator": definition, "prompt": "a book", "cassette": CASSETTE, "no_cache": True}
        with Mount("llm-generate", self.scratch / "save.json", self.directory("mnt"), **options) as mount:
            one = (mount.path / "docs" / "one.md").read_text()
            self.assertEqual(
                one.splitlines(),
                [
                    "/docs/one.md: a book, one, one, True",
                    "/docs directory 0 None",
                    "/docs/bad.md file 0 None",
                    "/docs/one.md file 0 None",
                    "/docs/two.md file 0 None",
                    "/latest symlink 11 'docs/two.md'",
                ],
            )
            two = (mount.path / "latest").read_text()
            self.assertIn(f"/docs/one.md file {len(one)} {one!r}", two)
            with self.assertRaises(OSError):
                (mount.path / "docs" / "bad.md").read_text()
            why = os.getxattr(mount.path / "docs" / "bad.md", "user.llmfs.error").decode()
            self.assertIn("generate must return a text, not int", why)

    def test_without_a_request_it_says_what_the_definition_lacks(self) -> None:
        for given in ("a prompt\n", "[]", ""):
            ended = subprocess.run([sys.executable, self.script()], input=given, capture_output=True, text=True)
            self.assertEqual(ended.returncode, 1)
            self.assertIn('the definition must say input = "json"', ended.stderr)


if __name__ == "__main__":
    unittest.main()
