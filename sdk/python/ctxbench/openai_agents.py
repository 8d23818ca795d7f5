"""A directory of a mount as the sessions of the OpenAI Agents SDK. Needs the package ``openai-agents``, 0.24 or newer.

A session is where that SDK keeps a conversation, so it is what a store can offer. The agent's tools need no adapter:
the SDK's ``MCPServerStdio`` runs ``ctxbench mcp agent-memory``, which has ``remember`` and ``recall``.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from typing import Optional, TypeVar, Union

from agents import SessionSettings, TResponseInputItem

from ._names import encode

_T = TypeVar("_T")


class MountSession:
    """A conversation as a file of JSON lines, ``SESSION_ID.jsonl``, one item a line::

        with Mount("sqlite", "sessions.db", "sessions") as mount:
            await Runner.run(agent, "Hello", session=MountSession("kim", mount))

    Threads and processes of a machine may share a session. An item that a killed process has not completely written
    is not part of it.
    """

    def __init__(
        self,
        session_id: str,
        directory: Union[str, "os.PathLike[str]"],
        session_settings: Optional[SessionSettings] = None,
    ) -> None:
        """Names a session.

        Args:
            session_id: the name of the conversation.
            directory: a mount, or a directory in it.
            session_settings: ``limit`` is the number of items that ``get_items`` returns by default.
        """
        self.session_id = session_id
        self.session_settings = session_settings or SessionSettings()
        self._path = os.path.join(os.path.abspath(directory), encode(session_id) + ".jsonl")

    async def get_items(self, limit: Optional[int] = None) -> list[TResponseInputItem]:
        """The items in their order, or the last ``limit`` of them.

        Raises:
            ValueError: a line of the file is not JSON.
        """
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        items = await asyncio.to_thread(self._items)
        # As in the SDK's SQLiteSession, a negative limit is none.
        return items if limit is None or limit < 0 else items[max(len(items) - limit, 0) :]

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Adds items at the end.

        Raises:
            TypeError: an item is not JSON; none was added.
        """
        if items:
            await _to_its_end(self._add, "".join(json.dumps(item) + "\n" for item in items).encode())

    async def pop_item(self) -> Optional[TResponseInputItem]:
        """Removes the last item, and returns it; ``None`` if there is none.

        Raises:
            ValueError: the last line of the file is not JSON.
        """
        return await _to_its_end(self._pop)

    async def clear_session(self) -> None:
        """Removes all items."""
        await _to_its_end(self._clear)

    def _items(self) -> list[TResponseInputItem]:
        with contextlib.suppress(FileNotFoundError), self._open() as (_, content):
            return [self._item(line) for line in content.split(b"\n")[:-1]]
        return []

    def _add(self, lines: bytes) -> None:
        with self._open(os.O_CREAT) as (descriptor, content):
            os.ftruncate(descriptor, len(content))
            while lines:
                lines = lines[os.write(descriptor, lines) :]

    def _pop(self) -> Optional[TResponseInputItem]:
        with contextlib.suppress(FileNotFoundError), self._open() as (descriptor, content):
            if content:
                start = content.rfind(b"\n", 0, -1) + 1
                item = self._item(content[start:])
                os.ftruncate(descriptor, start)
                return item
        return None

    def _clear(self) -> None:
        with contextlib.suppress(FileNotFoundError), self._open() as (descriptor, _):
            os.ftruncate(descriptor, 0)

    def _item(self, line: bytes) -> TResponseInputItem:
        try:
            item: TResponseInputItem = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{self._path} is not a session: a line is not JSON: {error}") from None
        return item

    @contextlib.contextmanager
    def _open(self, more: int = 0) -> Iterator[tuple[int, bytes]]:
        """A descriptor that appends to the locked file, and its complete lines. ``more`` are flags of ``open``.

        Raises:
            FileNotFoundError: there is no such file.
        """
        flags = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | more
        descriptor = os.open(self._path, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            with open(descriptor, "rb", closefd=False) as file:
                content = file.read()
            yield descriptor, content[: content.rfind(b"\n") + 1]
        finally:
            os.close(descriptor)


async def _to_its_end(call: Callable[..., _T], *arguments: object) -> _T:
    """Runs a call in a thread. If the caller is cancelled, it first waits for the call, which changes the history."""
    task = asyncio.ensure_future(asyncio.to_thread(call, *arguments))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
