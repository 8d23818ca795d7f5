"""A directory of a mount as the memory of Claude. Needs the package ``anthropic``, 2.14 or newer."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterator
from typing import Union
from urllib.parse import unquote

from anthropic.lib.tools import (
    BetaAbstractMemoryTool,
    BetaAsyncAbstractMemoryTool,
    BetaFunctionToolResultType,
    ToolError,
)
from anthropic.types.beta import (
    BetaMemoryTool20250818Command,
    BetaMemoryTool20250818CreateCommand,
    BetaMemoryTool20250818DeleteCommand,
    BetaMemoryTool20250818InsertCommand,
    BetaMemoryTool20250818RenameCommand,
    BetaMemoryTool20250818StrReplaceCommand,
    BetaMemoryTool20250818ViewCommand,
)

#: The directory that Claude sees.
_ROOT = "/memories"

#: The most lines of a file that a view shows.
_LINES_MAX = 999_999

#: The flags of a directory's descriptor; a link is refused.
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class MemoryTool(BetaAbstractMemoryTool):
    """Anthropic's memory tool (``memory_20250818``) over a directory, which Claude sees as ``/memories``::

        with Mount("agent-memory", "avm.db", "avm", agent_id="akashi") as mount:
            memory = MemoryTool(mount.path / "memory/private/akashi")
            client.beta.messages.tool_runner(model=model, max_tokens=1024, messages=messages, tools=[memory])

    Answers and errors are those of Anthropic's documentation. No path leads out of the directory: a path with ``..``
    (also URL-encoded) is refused, and no link is followed, not even one that another process creates meanwhile.
    On an ``agent-memory``, a view of ``/memories/:recall?query=NVDA+risk`` recalls notes.
    """

    def __init__(self, directory: Union[str, "os.PathLike[str]"]) -> None:
        """Serves a directory.

        Raises:
            NotADirectoryError: there is no such directory.
        """
        super().__init__()
        self._directory = os.path.realpath(directory)
        if not os.path.isdir(self._directory):
            raise NotADirectoryError(f"cannot serve {self._directory}: it is not a directory (mount it first)")

    def execute(self, command: BetaMemoryTool20250818Command) -> BetaFunctionToolResultType:
        """Executes a command.

        Raises:
            ToolError: it is refused, or the file system fails; the text is for the model.
        """
        try:
            return super().execute(command)
        except OSError as error:
            path = command.old_path if command.command == "rename" else command.path
            raise ToolError(f"Error: {command.command} of {path} failed: {error.strerror}") from error

    def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        """The lines of a file, or the files of a directory and of the directories in it."""
        path = command.path
        with self._parent(path) as (parent, name):
            status = _status(parent, name)
            if status is None:
                raise _missing(path)
            if stat.S_ISDIR(status.st_mode):
                directory = os.open(name, _DIRECTORY, dir_fd=parent)
                try:
                    listed = list(_listing(directory, path.rstrip("/"), 2))
                finally:
                    os.close(directory)
                return "\n".join(
                    [
                        f"Here're the files and directories up to 2 levels deep in {path}, "
                        "excluding hidden items and node_modules:",
                        f"{_size(status.st_size)}\t{path}",
                        *listed,
                    ]
                )
            lines = _read(parent, name, path).split("\n")
        if len(lines) > _LINES_MAX:
            raise ToolError(f"File {path} exceeds maximum line limit of 999,999 lines.")
        first, last = 1, len(lines)
        if command.view_range is not None:
            if len(command.view_range) != 2:
                raise ToolError("Error: Invalid `view_range` parameter. It should be [start_line, end_line]")
            first, end = command.view_range
            last = len(lines) if end == -1 else min(end, len(lines))
            if not 1 <= first <= last:
                raise ToolError(
                    f"Error: Invalid `view_range` parameter: {command.view_range}. "
                    f"It should be within the range of lines of the file: [1, {len(lines)}]"
                )
        return f"Here's the content of {path} with line numbers:\n" + _numbered(lines, first, last)

    def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        """Creates a file, and the directories above it."""
        with self._parent(command.path, creates=True) as (parent, name):
            if _status(parent, name) is not None:
                raise ToolError(f"Error: File {command.path} already exists")
            _write(parent, name, command.file_text, os.O_EXCL)
        return f"File created successfully at: {command.path}"

    def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        """Replaces the only occurrence of a text in a file."""
        path, old = command.path, command.old_str
        with self._parent(path) as (parent, name):
            content = _read(parent, name, path)
            # Occurrences may overlap.
            starts = [found.start() for found in re.finditer(f"(?={re.escape(old)})", content)] if old else []
            if not starts:
                raise ToolError(f"No replacement was performed, old_str `{old}` did not appear verbatim in {path}.")
            if len(starts) > 1:
                lines = ", ".join(str(content.count("\n", 0, start) + 1) for start in starts)
                raise ToolError(
                    f"No replacement was performed. Multiple occurrences of old_str `{old}` in lines: {lines}. "
                    "Please ensure it is unique"
                )
            edited = content[: starts[0]] + command.new_str + content[starts[0] + len(old) :]
            _replace(parent, name, edited)
        line = content.count("\n", 0, starts[0]) + 1
        shown = edited.split("\n")
        last = min(line + command.new_str.count("\n") + 2, len(shown))
        return "The memory file has been edited.\n" + _numbered(shown, max(line - 2, 1), last)

    def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        """Inserts lines into a file, after a line of it; 0 is before the first."""
        path, number = command.path, command.insert_line
        with self._parent(path) as (parent, name):
            lines = re.findall(r"[^\n]*\n|[^\n]+", _read(parent, name, path))
            if not 0 <= number <= len(lines):
                raise ToolError(
                    f"Error: Invalid `insert_line` parameter: {number}. "
                    f"It should be within the range of lines of the file: [0, {len(lines)}]"
                )
            if number and not lines[number - 1].endswith("\n"):
                lines[number - 1] += "\n"
            text = command.insert_text
            lines.insert(number, text if text.endswith("\n") else text + "\n")
            _replace(parent, name, "".join(lines))
        return f"The file {path} has been edited."

    def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        """Deletes a file, or a directory with everything in it."""
        with self._parent(command.path) as (parent, name):
            status = _status(parent, name)
            if status is None:
                raise ToolError(f"Error: The path {command.path} does not exist")
            if name == ".":
                raise ToolError(f"Error: The directory {_ROOT} itself cannot be deleted")
            if stat.S_ISDIR(status.st_mode):
                shutil.rmtree(f"/proc/self/fd/{parent}/{name}")
            else:
                os.unlink(name, dir_fd=parent)
        return f"Successfully deleted {command.path}"

    def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        """Renames or moves a file or directory. Creates the directories above the new path."""
        old, new = command.old_path, command.new_path
        with self._parent(old) as (parent, name):
            if _status(parent, name) is None:
                raise ToolError(f"Error: The path {old} does not exist")
            if name == ".":
                raise ToolError(f"Error: The directory {_ROOT} itself cannot be renamed")
            with self._parent(new, creates=True) as (new_parent, new_name):
                if _status(new_parent, new_name) is not None:
                    raise ToolError(f"Error: The destination {new} already exists")
                os.rename(name, new_name, src_dir_fd=parent, dst_dir_fd=new_parent)
        return f"Successfully renamed {old} to {new}"

    def clear_all_memory(self) -> str:
        """Deletes everything in the directory."""
        for name in os.listdir(self._directory):
            path = os.path.join(self._directory, name)
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)
        return "All memory cleared"

    @contextlib.contextmanager
    def _parent(self, path: str, creates: bool = False) -> Iterator[tuple[int, str]]:
        """A descriptor of the directory of a path, and the last name of the path. For the root: itself, and ``.``.

        Raises:
            ToolError: the path is not below the root, or leads through a link or a file.
        """
        names = _names(path)
        directory = os.open(self._directory, _DIRECTORY)
        try:
            for name in names[:-1]:
                if creates:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, 0o700, dir_fd=directory)
                status = _status(directory, name)
                if status is None:
                    raise _missing(path)
                if not stat.S_ISDIR(status.st_mode):
                    raise ToolError(f"Error: The path {path} leads through {name}, which is not a directory")
                above, directory = directory, os.open(name, _DIRECTORY, dir_fd=directory)
                os.close(above)
            yield directory, names[-1] if names else "."
        finally:
            os.close(directory)


class AsyncMemoryTool(BetaAsyncAbstractMemoryTool):
    """As :class:`MemoryTool`, for ``AsyncAnthropic``. Commands run in threads."""

    def __init__(self, directory: Union[str, "os.PathLike[str]"]) -> None:
        """Serves a directory.

        Raises:
            NotADirectoryError: there is no such directory.
        """
        super().__init__()
        self._tool = MemoryTool(directory)

    async def execute(self, command: BetaMemoryTool20250818Command) -> BetaFunctionToolResultType:
        """Executes a command, as :meth:`MemoryTool.execute`."""
        return await asyncio.to_thread(self._tool.execute, command)

    async def view(self, command: BetaMemoryTool20250818ViewCommand) -> BetaFunctionToolResultType:
        return await self.execute(command)

    async def create(self, command: BetaMemoryTool20250818CreateCommand) -> BetaFunctionToolResultType:
        return await self.execute(command)

    async def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> BetaFunctionToolResultType:
        return await self.execute(command)

    async def insert(self, command: BetaMemoryTool20250818InsertCommand) -> BetaFunctionToolResultType:
        return await self.execute(command)

    async def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> BetaFunctionToolResultType:
        return await self.execute(command)

    async def rename(self, command: BetaMemoryTool20250818RenameCommand) -> BetaFunctionToolResultType:
        return await self.execute(command)

    async def clear_all_memory(self) -> BetaFunctionToolResultType:
        """Deletes everything in the directory."""
        return await asyncio.to_thread(self._tool.clear_all_memory)


def _names(path: str) -> list[str]:
    """The names of a path below the root.

    Raises:
        ToolError: the path is not below the root.
    """
    names = [name for name in path.split("/") if name]
    if not (path == _ROOT or path.startswith(_ROOT + "/")) or "\0" in path:
        raise ToolError(f"Error: The path {path} is not in {_ROOT}. Please provide a valid path.")
    decoded = path
    while True:
        if any(part in (".", "..") for part in re.split(r"[/\\]", decoded)):
            raise ToolError(f"Error: The path {path} has . or .. in it. Please provide a valid path.")
        decoded, before = unquote(decoded), decoded
        if decoded == before:
            return names[1:]


def _missing(path: str) -> ToolError:
    return ToolError(f"Error: The path {path} does not exist. Please provide a valid path.")


def _status(directory: int, name: str) -> os.stat_result | None:
    """The status of a name, without following a link; ``None`` if there is none."""
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _read(directory: int, name: str, path: str) -> str:
    """The text of a regular file."""
    status = _status(directory, name)
    if status is None or stat.S_ISDIR(status.st_mode):
        raise _missing(path)
    if not stat.S_ISREG(status.st_mode):
        raise ToolError(f"Error: The path {path} is a link or a special file, which this memory does not read")
    with open(os.open(name, os.O_RDONLY | _FILE, dir_fd=directory), "rb") as file:
        try:
            return file.read().decode()
        except UnicodeDecodeError:
            raise ToolError(f"Error: The file {path} is not a text in UTF-8") from None


def _write(directory: int, name: str, text: str, flags: int) -> None:
    """Writes a new file, or none."""
    try:
        content = text.encode()
    except UnicodeEncodeError:
        raise ToolError("Error: the text cannot be encoded as UTF-8") from None
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | flags | _FILE, 0o600, dir_fd=directory)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
    except BaseException:
        os.unlink(name, dir_fd=directory)
        raise


def _replace(directory: int, name: str, text: str) -> None:
    """Replaces the content of a file at once, and keeps its mode and attributes."""
    new = f".new-{uuid.uuid4().hex}"
    _write(directory, new, text, os.O_EXCL)
    try:
        shutil.copystat(f"/proc/self/fd/{directory}/{name}", f"/proc/self/fd/{directory}/{new}", follow_symlinks=False)
        os.utime(new, dir_fd=directory)
        os.replace(new, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        os.unlink(new, dir_fd=directory)
        raise


def _numbered(lines: list[str], first: int, last: int) -> str:
    return "\n".join(f"{number:>6}\t{lines[number - 1]}" for number in range(first, last + 1))


def _listing(directory: int, path: str, levels: int) -> Iterator[str]:
    """The sizes and paths of what a directory has, by name."""
    for name in sorted(os.listdir(directory)):
        status = _status(directory, name)
        if name.startswith(".") or name == "node_modules" or status is None:
            continue
        if stat.S_ISREG(status.st_mode):
            yield f"{_size(status.st_size)}\t{path}/{name}"
        elif stat.S_ISDIR(status.st_mode):
            yield f"{_size(status.st_size)}\t{path}/{name}/"
            if levels > 1:
                below = os.open(name, _DIRECTORY, dir_fd=directory)
                try:
                    yield from _listing(below, f"{path}/{name}", levels - 1)
                finally:
                    os.close(below)


def _size(count: int) -> str:
    """A number of bytes as ``ls -h`` writes it."""
    if count < 1024:
        return f"{count}B"
    size = float(count)
    for unit in "KMG":
        size /= 1024
        if size < 1024:
            break
    return f"{size:.1f}{unit}"
