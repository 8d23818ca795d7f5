"""An agent's memory: notes that ``recall`` finds within a budget of tokens."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from pathlib import Path
from typing import Dict, Mapping, Optional, Sequence, Union

from ._errors import ToolError
from ._server import Server

#: How the answer of ``remember`` begins; the note's path follows.
_REMEMBERED = "Remembered in "


class _Store:
    """The server of one store in this process. A store is mounted once, so it serves one agent after another."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._server: Optional[Server] = None
        self._agent = ""

    def serve(self, agent: str) -> None:
        """Starts the server of an agent, unless it runs."""
        with self._lock:
            self._serve(agent)

    def _serve(self, agent: str) -> Server:
        if self._server is None or self._agent != agent:
            self._close()
            self._server = Server("agent-memory", self._directory, f"--agent-id={agent}")
            self._agent = agent
        return self._server

    def call(self, agent: str, tool: str, arguments: Mapping[str, object]) -> str:
        with self._lock:
            server = self._serve(agent)
            try:
                return server.call(tool, arguments)
            except ToolError:
                raise
            except BaseException:
                # An answer may be half read: the next call needs another server.
                self._server = None
                with contextlib.suppress(Exception):
                    server.close()
                raise

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()


_stores: Dict[str, _Store] = {}
_stores_lock = threading.Lock()


def _store(directory: str) -> _Store:
    with _stores_lock:
        return _stores.setdefault(directory, _Store(directory))


def _close_all() -> None:
    for store in list(_stores.values()):
        store.close()


def _after_fork() -> None:
    # The servers belong to the parent. The lock may have been held by a thread that does not exist here.
    global _stores_lock
    _stores_lock = threading.Lock()
    _stores.clear()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_after_fork)


def _default_store() -> str:
    data = os.environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
    directory = os.path.join(data, "ctxbench", "memory")
    # Notes are for this user alone.
    os.makedirs(directory, mode=0o700, exist_ok=True)
    return directory


class AgentMemory:
    """The memory of one agent: its private notes, and the shared notes of all agents of the store."""

    def __init__(self, directory: str, agent: str) -> None:
        self._directory = directory
        self.agent = agent
        _store(directory).serve(agent)

    def remember(
        self,
        text: str,
        title: Optional[str] = None,
        importance: Optional[float] = None,
        tags: Sequence[str] = (),
        namespace: Optional[str] = None,
        ttl: Union[str, int, None] = None,
    ) -> str:
        """Stores a note, and returns its path in the memory, such as ``/memory/private/akashi/rsi_rule.md``.

        The note is private, unless ``namespace`` shares it with all agents under ``/memory/shared/NAMESPACE/``.

        Args:
            text: the note.
            title: its file name, without ``.md``; the first words of the text by default. If it exists, the
                new one gets a number.
            importance: 0 to 1; 0.5 by default.
            tags: words of letters, digits, ``-`` and ``_``.
            namespace: 1 to 64 letters, digits, ``.``, ``_``, ``-``, ``@``.
            ttl: how long search and recall find the note: seconds, or a number with ``s``, ``m``, ``h``, ``d``
                or ``w``; for ever by default.

        Raises:
            ToolError: an argument is invalid, or the note cannot be written.
            CommandError: the server has ended, or cannot start.
        """
        if isinstance(tags, str):
            raise TypeError(f"tags must be a list of words, not {tags!r}")
        arguments: Dict[str, object] = {"text": text, "tags": list(tags)}
        optional: Dict[str, object] = {
            "title": title,
            "importance": importance,
            "namespace": namespace,
            "ttl": None if ttl is None else str(ttl),
        }
        arguments.update((name, value) for name, value in optional.items() if value is not None)
        answer = _store(self._directory).call(self.agent, "remember", arguments)
        return "/" + answer[len(_REMEMBERED) :]

    def recall(self, query: str, max_tokens: int = 2000, strategy: str = "balanced") -> str:
        """The most useful notes for a question, as Markdown; the first line says how many are relevant.

        Args:
            query: a question or words, at most 4,095 bytes.
            max_tokens: the most ``o200k`` tokens of the answer, 64 to 1,000,000.
            strategy: ``balanced`` (relevance, importance and recency), ``recency`` (newest first) or
                ``importance`` (most important first); capitals are accepted.

        Raises:
            ToolError: an argument is invalid.
            CommandError: the server has ended, or cannot start.
        """
        arguments = {"question": query, "max_tokens": max_tokens, "strategy": strategy}
        return _store(self._directory).call(self.agent, "recall", arguments)


class Memory:
    """A store with the memories of several agents, in one directory.

    One process at a time can have a store open. Within it, the store serves one agent at a time: a call for
    another agent than the one before mounts the store again, which takes a moment. The store is closed by
    :meth:`close`, at the end of a ``with`` block, and at the end of the process.
    """

    def __init__(self, store: Union[str, "os.PathLike[str]", None] = None) -> None:
        """Names the store.

        Args:
            store: its directory, created if missing; by default ``ctxbench/memory`` in ``$XDG_DATA_HOME`` or
                ``~/.local/share``.
        """
        self.directory = Path(os.path.realpath(_default_store() if store is None else store))

    def agent_memory(self, agent: str) -> AgentMemory:
        """Opens the memory of an agent, which is created if it is missing.

        Raises:
            CommandError: the store cannot be mounted, or the agent's name is invalid.
            FileNotFoundError: there is no program ``ctxbench``.
        """
        return AgentMemory(str(self.directory), agent)

    def close(self) -> None:
        """Unmounts the store, and waits until everything is written. A later call opens it again.

        Raises:
            CommandError: the last write failed.
        """
        _store(str(self.directory)).close()

    def __enter__(self) -> "Memory":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def agent_memory(agent: str, store: Union[str, "os.PathLike[str]", None] = None) -> AgentMemory:
    """Opens the memory of an agent in a store, as :meth:`Memory.agent_memory`."""
    return Memory(store).agent_memory(agent)
