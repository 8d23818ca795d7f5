"""File tools over the state of an agent framework: no mount and no process.

The tools and texts are those of ``ctxbench mcp state``.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any, Callable, Dict, List, Mapping, MutableMapping, Optional, Sequence

from ._errors import ToolError

#: The lines that a read shows by default.
READ_LIMIT = 2000

#: The most bytes that a read shows.
READ_MAX = 256 << 10

#: The file with the agent's plan, and the most steps of it.
TODOS = "todos.json"
TODOS_MAX = 1000

_STATUSES = ("pending", "in_progress", "completed")
_FIELDS = ("id", "content", "status", "activeForm")


class StateFiles:
    """Tools over ``state["files"]``, a dictionary from file names to texts, which the framework saves::

        tools = StateFiles(state)
        tools.write_file("july.json", json.dumps(rows))     # ✅ Saved july.json (50234 bytes, 245 lines)

    Only the tools' answers enter the model's context. ``state["files"][name]`` is the text itself.

    A node of a graph gets a copy of the state, and the graph keeps what the node returns. It must return the files::

        return {"messages": [...], **tools.update()}

    In a node of LangGraph, a ``RuntimeWarning`` says that :meth:`update` was not called after a write.
    """

    _has_unreturned = False

    def __init__(self, state: MutableMapping[str, Any]) -> None:
        """Uses ``state["files"]``, which is created if it is missing.

        Raises:
            TypeError: it is there, but not a dictionary from names to texts; or the state is that of a graph of
                LangGraph without ``files``, which would not keep them.
        """
        self._is_of_graph = _is_of_graph(state)
        self.state = state
        files = state.setdefault("files", {})
        if not isinstance(files, MutableMapping):
            raise TypeError(f'state["files"] must be a dictionary from file names to texts, not {type(files).__name__}')
        for name, text in files.items():
            if isinstance(text, Mapping) and "content" in text:
                raise TypeError(
                    f'state["files"][{name!r}] is a file of deepagents, not a text: an agent of deepagents has file tools '
                    "of its own (ctxbench.deepagents.backend puts their files on a mount); give StateFiles another state"
                )
            if not isinstance(name, str) or not isinstance(text, str):
                raise TypeError(
                    f'state["files"] must be a dictionary from file names to texts; {name!r} has {type(text).__name__}'
                )

    def __del__(self) -> None:
        if self._has_unreturned and not sys.is_finalizing():
            warnings.warn(
                "a node wrote files by StateFiles and did not call update(): they are lost unless the node returns them; "
                'return {"messages": [...], **tools.update()}',
                RuntimeWarning,
                stacklevel=2,
            )

    def update(self) -> Dict[str, Any]:
        """The part of a node's update that keeps the files: ``return {"messages": [...], **tools.update()}``.

        A tool of LangGraph returns it in ``Command(update={"messages": [ToolMessage(...)], **tools.update()})``.
        It has all files of the state.
        """
        self._has_unreturned = False
        return {"files": self._files}

    @property
    def _files(self) -> MutableMapping[str, str]:
        # A framework may have put another dictionary in its place.
        files: MutableMapping[str, str] = self.state.setdefault("files", {})
        return files

    def ls_files(self) -> str:
        """The files and their sizes in bytes, in the order of their names."""
        files = self._files
        if not files:
            return "No files in virtual workspace."
        lines = [f"\n  {name} ({len(files[name].encode())} bytes)" for name in sorted(files)]
        return "Files in virtual workspace:" + "".join(lines)

    def ls(self) -> str:
        """As :meth:`ls_files`."""
        return self.ls_files()

    def write_file(self, file_path: str, content: str) -> str:
        """Creates or replaces a file, and returns a confirmation with its bytes and lines.

        Raises:
            ToolError: the name is empty or has more than one line, or the content cannot be encoded as UTF-8.
            TypeError: the content is not a text.
        """
        _check_text("write_file", "file_path", file_path)
        _check_text("write_file", "content", content)
        if all(map(_is_space, file_path)) or any(c in file_path for c in "\n\r\0"):
            raise ToolError(f"Error: {_quoted(file_path)} is not a file name: it is empty or has more than one line.")
        try:
            size = len(content.encode())
            file_path.encode()
        except UnicodeEncodeError:
            raise ToolError(
                f"Error: {file_path} was not saved: its content is not text, and an agent's state holds only text."
            ) from None
        self._files[file_path] = content
        self._has_unreturned = self._is_of_graph
        return f"✅ Saved {file_path} ({size} bytes, {_line_count(content)} lines)"

    def read_file(self, file_path: str, offset: int = 1, limit: Optional[int] = None) -> str:
        """Numbered lines of a file, at most 256 KiB of them.

        Args:
            file_path: the file.
            offset: the first line, from 1.
            limit: the number of lines; 2,000 by default.

        Raises:
            ToolError: there is no such file, or it has no such lines.
            TypeError: a number is not an integer.
        """
        _check_text("read_file", "file_path", file_path)
        limit = READ_LIMIT if limit is None else limit
        for number in (offset, limit):
            if isinstance(number, bool) or not isinstance(number, int):
                raise TypeError(f"read_file: offset and limit must be integers, not {number!r}")
            if number < 0:
                raise _invalid("read_file", f"invalid value: integer `{number}`, expected u64")
        content = self._files.get(file_path)
        if content is None:
            raise ToolError(f"Error: File {file_path} not found. Use ls_files() to see what there is.")
        total = _line_count(content)
        first = max(offset, 1)
        last = min(first + limit - 1, total)
        if first > total or limit == 0:
            raise ToolError(
                f"Error: {file_path} has {total} lines; there are none from line {first} on (limit {limit})."
            )
        lines = content.split("\n")[first - 1 : last]
        numbered = [f"\n{number:>6}|{line}" for number, line in enumerate(lines, first)]
        return _shortened(f"=== {file_path} (lines {first}-{last} of {total}) ===" + "".join(numbered))

    def write_todos(self, todos: Sequence[Mapping[str, str]]) -> str:
        """Replaces the plan, the file ``todos.json``, and returns the number of steps of each status.

        Args:
            todos: at most 1,000 steps; each has ``content``, ``status`` (``pending``, ``in_progress`` or
                ``completed``) and, if wanted, an ``id`` and the ``activeForm`` of Claude Code.

        Raises:
            ToolError: a step is invalid; the plan is unchanged.
            TypeError: the steps are not a list of dictionaries.
        """
        if isinstance(todos, (str, bytes, Mapping)) or not all(isinstance(todo, Mapping) for todo in todos):
            raise TypeError("write_todos: todos must be a list of dictionaries")
        steps = [_step(todo) for todo in todos]
        if len(steps) > TODOS_MAX:
            raise ToolError(f"write_todos: there are {len(steps)} todos; the maximum is {TODOS_MAX}")
        ids = set()
        for number, step in enumerate(steps, 1):
            if all(map(_is_space, step["content"])):
                raise ToolError(f"write_todos: the content of todo {number} is empty; say what is to be done")
            if "id" in step:
                if step["id"] in ids:
                    raise ToolError(f"write_todos: two todos have the id {_quoted(step['id'])}")
                ids.add(step["id"])
        self.write_file(TODOS, json.dumps(steps, indent=2, ensure_ascii=False) + "\n")
        counts = [sum(step["status"] == status for step in steps) for status in _STATUSES]
        return f"Saved {TODOS}: {counts[0]} pending, {counts[1]} in progress, {counts[2]} completed"


def _is_of_graph(state: Mapping[str, Any]) -> bool:
    """Whether this is a node of LangGraph, and the state may be that of the graph.

    Raises:
        TypeError: the state is that of the graph, which has no ``files``.
    """
    read = _channels()
    if read is None or not state or not all(_has_channel(read, name) for name in state):
        return False
    if not _has_channel(read, "files"):
        raise TypeError(
            "the state of this graph has no `files`, so that what StateFiles writes would be lost: declare "
            "`files: Annotated[dict, operator.or_]` in the schema of the state"
        )
    return True


def _channels() -> Optional[Callable[[List[str]], object]]:
    """Reads channels of the graph of LangGraph whose node runs; ``None`` outside of a node."""
    if "langgraph" not in sys.modules:
        return None
    try:
        from langgraph.config import get_config

        # Without this key, which LangGraph does not document, nothing is known.
        read: Optional[Callable[[List[str]], object]] = get_config().get("configurable", {}).get("__pregel_read")
    except (ImportError, RuntimeError):
        return None
    return read


def _has_channel(read: Callable[[List[str]], object], name: str) -> bool:
    try:
        read([name])
    except KeyError:
        return False
    return True


def _step(todo: Mapping[str, str]) -> Dict[str, str]:
    """A step with its fields in their order."""
    for name in todo:
        if name not in _FIELDS:
            known = ", ".join(f"`{field}`" for field in _FIELDS)
            raise _invalid("write_todos", f"unknown field `{name}`, expected one of {known}")
    step = {name: todo[name] for name in _FIELDS if todo.get(name) is not None}
    for name, value in step.items():
        _check_text("write_todos", name, value)
    for name in ("content", "status"):
        if name not in step:
            raise _invalid("write_todos", f"missing field `{name}`")
    if step["status"] not in _STATUSES:
        known = ", ".join(f"`{status}`" for status in _STATUSES)
        raise _invalid("write_todos", f"unknown variant `{step['status']}`, expected one of {known}")
    return step


def _invalid(tool: str, reason: str) -> ToolError:
    return ToolError(f"{tool}: invalid arguments: {reason}; see the tool's schema")


def _check_text(tool: str, name: str, value: object) -> None:
    if not isinstance(value, str):
        hint = "; use json.dumps" if isinstance(value, (dict, list)) else ""
        raise TypeError(f"{tool}: {name} must be a text, not {type(value).__name__}{hint}")


def _line_count(content: str) -> int:
    """The text after the last newline counts, even if it is empty."""
    return content.count("\n") + 1


def _is_space(character: str) -> bool:
    """Whether Unicode calls it white space. Python also counts four separators of ASCII."""
    return character.isspace() and character not in "\x1c\x1d\x1e\x1f"


def _quoted(text: str) -> str:
    """A text in quotation marks, on one line."""
    names = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0", '"': '\\"', "\\": "\\\\"}
    escaped: List[str] = []
    for character in text:
        is_shown = character.isprintable() and character not in names
        escaped.append(character if is_shown else names.get(character, f"\\u{{{ord(character):x}}}"))
    return '"' + "".join(escaped) + '"'


def _shortened(answer: str) -> str:
    """As much of a numbered text as a read shows: whole lines, or the beginning of a first line that is longer."""
    encoded = answer.encode()
    if len(encoded) <= READ_MAX:
        return answer
    newline = encoded.rfind(b"\n", 0, READ_MAX + 1)
    # The first line is the header.
    if newline > encoded.find(b"\n"):
        end, following = newline, "continue with `offset`, or give `limit`"
    else:
        end, following = READ_MAX, "within a line, whose rest no read shows; write it as several lines"
    # Not within a character.
    shown = encoded[:end].decode("utf-8", "ignore")
    return f"{shown}\n(truncated after {READ_MAX} bytes; {following})"
