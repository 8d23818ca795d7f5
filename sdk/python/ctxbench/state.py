"""File tools over the state of an agent framework: no mount and no process.

The tools and texts are those of ``ctxbench mcp state``.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, MutableMapping, Optional, Sequence

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
    """

    def __init__(self, state: MutableMapping[str, Any]) -> None:
        """Uses ``state["files"]``, which is created if it is missing.

        Raises:
            TypeError: it is there, but not a dictionary from names to texts.
        """
        self.state = state
        files = state.setdefault("files", {})
        if not isinstance(files, MutableMapping) or not all(
            isinstance(name, str) and isinstance(text, str) for name, text in files.items()
        ):
            raise TypeError('state["files"] must be a dictionary from file names to texts')

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
