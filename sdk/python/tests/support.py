"""What the tests share. The package is the one beside the tests."""

import contextlib
import io
import os
import shutil
import signal
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

SDK = Path(__file__).resolve().parent.parent

# A shell that starts tests in the background makes them and their programs ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)


def can_mount() -> bool:
    """Whether this user can mount here."""
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError:
        return False
    return os.geteuid() == 0 or shutil.which("fusermount3") is not None


needs_mounts = unittest.skipUnless(can_mount(), "mounts need /dev/fuse, and root or fusermount3")


def mounts_under(directory: Path) -> list:
    """The mount points below a directory."""
    with open("/proc/self/mounts") as table:
        points = [line.split(" ")[1] for line in table]
    return [point for point in points if point.startswith(f"{directory}/")]


class ScratchCase(unittest.TestCase):
    """A test with a directory of its own, in which no mount is left."""

    def setUp(self) -> None:
        self.scratch = Path(tempfile.mkdtemp(prefix="ctxbench-sdk-", dir="/var/tmp"))
        self.addCleanup(self._clean)
        model = os.environ.get("CTXBENCH_EMBEDDINGS")
        os.environ["CTXBENCH_EMBEDDINGS"] = "none"
        self.addCleanup(self._restore, "CTXBENCH_EMBEDDINGS", model)

    @staticmethod
    def _restore(name: str, value) -> None:
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value

    def set_variable(self, name: str, value: str) -> None:
        self.addCleanup(self._restore, name, os.environ.get(name))
        os.environ[name] = value

    def directory(self, name: str) -> Path:
        made = self.scratch / name
        made.mkdir()
        return made

    def run_example(self, module: str, **names) -> str:
        """Runs the README's example that imports a module, in the scratch, and returns what it prints."""
        blocks = (SDK / "README.md").read_text().split("```python\n")[1:]
        (text,) = (block.split("```")[0] for block in blocks if block.startswith(f"from {module} import"))
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        os.chdir(self.scratch)
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(text, dict(names))
        return said.getvalue()

    def _clean(self) -> None:
        left = mounts_under(self.scratch)
        for point in reversed(left):
            os.system(f"umount -l '{point}'")
        shutil.rmtree(self.scratch)
        self.assertEqual(left, [], "a mount was left behind")
