"""Mounts as context managers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Dict, Optional, Union

from ._command import Child, CommandError, flags, invoke

#: The option that names the place of a store's content.
_STORE_OPTIONS: Dict[str, str] = {
    "sqlite": "db",
    "agent-memory": "db",
    "s3": "bucket",
    "view": "source",
    "llm-history": "log_db",
    "llm-generate": "save",
}

#: The line that a mount prints when it can be used.
_READY = b"ready\n"

#: Seconds that a daemon may take to end after its mount has gone.
_PATIENCE = 60.0


class Mount:
    """A mount that lasts as long as a ``with`` block::

        with Mount("sqlite", "notes.db", "notes") as mount:
            (mount.path / "plan.md").write_text("first step")

    The end of the block unmounts, and waits until everything is flushed, also after Ctrl-C and other
    exceptions. If this process is killed, the mount ends by itself.
    """

    def __init__(
        self,
        kind: str,
        store: Union[str, "os.PathLike[str]", None],
        path: Union[str, "os.PathLike[str]"],
        **options: object,
    ) -> None:
        """Describes a mount. Nothing is mounted yet.

        Args:
            kind: a store of ``ctxbench mount``, such as ``sqlite``, ``agent-memory``, ``s3``, ``view`` or
                ``memory``.
            store: where its content is: a database file (``sqlite``, ``agent-memory``), a bucket (``s3``), the
                source of a ``view``; ``None`` for the default of ``ctxbench mount``, and for stores without a
                place.
            path: an empty directory.
            options: more options of ``ctxbench mount KIND``: ``agent_id="akashi"`` is ``--agent-id akashi``.

        Raises:
            TypeError: ``store`` or ``daemon`` is given and has no meaning.
        """
        if "daemon" in options:
            raise TypeError("a Mount lasts as long as its block; use `ctxbench mount --daemon` for a longer one")
        if store is not None and kind not in _STORE_OPTIONS:
            raise TypeError(f"{kind} has no place for its content: give None in place of {os.fspath(store)!r}")
        given = {} if store is None else {_STORE_OPTIONS[kind]: store}
        self.kind = kind
        self.path = Path(os.path.abspath(path))
        self._words = ["mount", kind, *flags({**given, **options}), "--until-stdin-ends", str(self.path)]
        self._child: Optional[Child] = None

    def __fspath__(self) -> str:
        return str(self.path)

    def __enter__(self) -> "Mount":
        """Mounts, and waits until the mount can be used.

        Raises:
            CommandError: it cannot be mounted; the error has the command's standard error.
            FileNotFoundError: there is no program ``ctxbench``.
        """
        if self._child is not None:
            raise RuntimeError(f"{self.path} is already mounted by this object")
        # The end of its input ends the mount, however this process ends.
        child = Child(self._words)
        try:
            assert child.process.stdout is not None
            if child.process.stdout.readline() != _READY:
                raise child.failure(_end(child.process))
        except BaseException:
            # A mount that still opens its store reads no input.
            child.process.terminate()
            _end(child.process)
            child.release()
            raise
        self._child = child
        return self

    def __exit__(self, *_: object) -> None:
        """Unmounts, and waits until everything is flushed.

        Raises:
            CommandError: the unmount or the last flush failed, or the daemon has crashed. A mount that
                programs still use after some seconds ends all the same, and their open files get errors.
        """
        child, self._child = self._child, None
        if child is None:
            return
        try:
            # A mount that the user has ended is not there any more; that of a crashed daemon is.
            if _is_mounted(self.path):
                invoke(["unmount", str(self.path)], defers_interrupt=True)
        except CommandError as error:
            raise CommandError(error.command, error.returncode, f"{error.stderr}\n{child.said()}") from None
        finally:
            failure = child.failure(_end(child.process))
            child.release()
        if failure.returncode != 0:
            raise failure


def _is_mounted(path: Path) -> bool:
    """Whether a mount is on a directory. The directory itself is not asked: a dead mount answers with errors."""
    point = os.path.join(os.path.realpath(path.parent), path.name)
    escapes = {"\\": "\\134", " ": "\\040", "\t": "\\011", "\n": "\\012"}
    written = "".join(escapes.get(character, character) for character in point)
    with open("/proc/self/mounts", "rb") as table:
        return any(line.split(b" ")[1] == os.fsencode(written) for line in table)


def _end(process: "subprocess.Popen[bytes]") -> Optional[int]:
    """Ends a mount by the end of its input, and returns its exit code; ``None`` if it still runs."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.close()
    process.stdout.close()
    try:
        return process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        return None
