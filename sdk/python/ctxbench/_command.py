"""Runs the program ``ctxbench``. What its commands print is parsed elsewhere."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
from typing import IO, List, Mapping, Optional, Sequence


class CommandError(RuntimeError):
    """A command of ``ctxbench`` failed.

    ``command`` is its command line, ``returncode`` its exit code (negative: the signal that ended it;
    ``None``: it still runs), and ``stderr`` what it wrote to standard error.
    """

    def __init__(self, command: Sequence[str], returncode: Optional[int], stderr: str) -> None:
        self.command = tuple(command)
        self.returncode = returncode
        self.stderr = stderr.strip()
        words = " ".join(self.command[1:3])
        end = "is still running" if returncode is None else f"failed with exit code {returncode}"
        super().__init__(f"ctxbench {words} {end}: {self.stderr or 'it wrote no error'}")


def program() -> str:
    """The path of ``ctxbench``: ``CTXBENCH_BIN``, or the one on ``PATH``, or the one of this Python environment.

    Raises:
        FileNotFoundError: there is none.
    """
    named = os.environ.get("CTXBENCH_BIN")
    found = shutil.which(named or "ctxbench")
    if found is None and not named:
        # An environment may be used without being activated.
        found = shutil.which("ctxbench", path=sysconfig.get_path("scripts"))
    if found is None:
        where = f"CTXBENCH_BIN names {named}, which is not a program" if named else "ctxbench is not on PATH"
        raise FileNotFoundError(f"{where}: install it, or set CTXBENCH_BIN to the path of ctxbench")
    return found


class Child:
    """A running command with pipes for its input and output. What it writes to standard error is kept."""

    def __init__(self, arguments: Sequence[str]) -> None:
        """Starts the command.

        Raises:
            FileNotFoundError: there is no program ``ctxbench``.
        """
        self.command = [program(), *arguments]
        self._errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            # A terminal's Ctrl-C must not end the command before this process ends it.
            start_new_session=True,
        )

    def said(self) -> str:
        """What the command has written to standard error so far."""
        self._errors.seek(0)
        return self._errors.read().decode("utf-8", "replace")

    def failure(self, code: Optional[int]) -> CommandError:
        """The error that the command ended with this exit code; ``None``: it still runs."""
        return CommandError(self.command, code, self.said())

    @property
    def is_released(self) -> bool:
        """Whether :meth:`release` was called."""
        return self._errors.closed

    def release(self) -> None:
        """Drops what the command has written to standard error."""
        self._errors.close()


def flags(options: Mapping[str, object]) -> List[str]:
    """Keyword arguments as options of a command: ``agent_id="kim"`` becomes ``--agent-id=kim``.

    ``True`` gives an option without a value, ``None`` and ``False`` give none, and a list or tuple repeats the
    option.
    """
    words: List[str] = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        for each in value if isinstance(value, (list, tuple)) else [value]:
            if each is True:
                words.append(option)
            elif each is not None and each is not False:
                text = os.fspath(each) if isinstance(each, os.PathLike) else str(each)
                words.append(f"{option}={text}")
    return words


def invoke(arguments: Sequence[str], *, echoes: bool = False, defers_interrupt: bool = False) -> str:
    """Runs a command to its end, and returns its standard output.

    Ctrl-C is passed on to the command, which ends in order; then ``KeyboardInterrupt`` is raised. With
    ``defers_interrupt`` the command is not interrupted. With ``echoes``, its standard error is shown while it runs.

    Raises:
        CommandError: the command failed.
        FileNotFoundError: there is no program ``ctxbench``.
    """
    command = [program(), *arguments]
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A terminal's Ctrl-C reaches all processes of a session.
        start_new_session=defers_interrupt,
    )
    output: List[bytes] = []
    errors: List[bytes] = []
    readers = [_reader(child.stdout, output, False), _reader(child.stderr, errors, echoes)]
    is_interrupted = False
    while True:
        try:
            for reader in readers:
                reader.join()
            child.wait()
            break
        except KeyboardInterrupt:
            is_interrupted = True
            if not defers_interrupt:
                child.send_signal(signal.SIGINT)
    for pipe in (child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()
    if is_interrupted:
        raise KeyboardInterrupt
    if child.returncode != 0:
        raise CommandError(command, child.returncode, _text(errors))
    return _text(output)


def _reader(pipe: Optional[IO[bytes]], lines: List[bytes], echoes: bool) -> threading.Thread:
    """A started thread that collects the lines of a pipe."""

    def read() -> None:
        for line in pipe or ():
            lines.append(line)
            if echoes:
                sys.stderr.write(line.decode("utf-8", "replace"))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


def _text(lines: Sequence[bytes]) -> str:
    return b"".join(lines).decode("utf-8", "replace")
