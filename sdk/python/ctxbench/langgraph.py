"""A directory of a mount as the store of a LangGraph agent. Needs the package ``langgraph``, 1.2 or newer."""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from typing import Any, Union

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
)

from ._command import invoke
from ._names import decode, encode

#: A link in the directory of a namespace. Its target says when the first item was put.
_ORDER = ".order"

_SUFFIX = ".json"

#: The largest answer of a recall, in tokens.
_RECALL_TOKENS = 1_000_000

_Namespace = tuple[str, ...]
_Place = tuple[_Namespace, str]


class CtxbenchStore(BaseStore):
    """Items as files: the value of ``("users", "kim")`` and ``"diet"`` is in ``users/kim/diet.json``::

        with Mount("agent-memory", "avm.db", "avm", agent_id="akashi") as mount:
            store = CtxbenchStore(mount.path / "memory/private/akashi")
            graph = builder.compile(store=store)

    Operations without a query answer as LangGraph's ``InMemoryStore`` does, with two differences: ``created_at`` is
    the time of the first put, and neither a get nor a delete creates a namespace. A query recalls items, and needs an
    ``agent-memory``. A search with a query returns only relevant items, in the order of ``ctxbench recall`` and
    without scores.

    Threads may share a store. If several processes put the same item, the last put remains.
    """

    def __init__(self, directory: Union[str, "os.PathLike[str]"]) -> None:
        """Keeps the items in a directory, and creates it if its parent exists.

        Args:
            directory: a mount, or a directory in it. On an ``agent-memory``, other agents find the items,
                unless the directory is in ``/memory/private/AGENT``.

        Raises:
            OSError: the directory cannot be created.
        """
        self._root = os.path.realpath(directory)
        if not os.path.isdir(self._root):
            os.mkdir(self._root)
        self._lock = threading.Lock()
        self._last = 0

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Executes operations.

        Reads see the store as it was before the batch. Of several puts of an item, the last counts.

        Raises:
            NotImplementedError: a put has ``ttl`` or ``index``, or a query is not in an ``agent-memory``.
            TypeError, ValueError: a value is not JSON, or a filter cannot be compared; nothing was put.
            OSError: a file cannot be read or written.
        """
        puts: dict[_Place, tuple[PutOp, str]] = {}
        results: list[Result] = []
        with self._lock:
            for op in ops:
                result: Result = None
                if isinstance(op, GetOp):
                    result = self._read(op.namespace, op.key)
                elif isinstance(op, SearchOp):
                    result = self._search(op)
                elif isinstance(op, ListNamespacesOp):
                    result = self._list_namespaces(op)
                elif isinstance(op, PutOp):
                    puts[op.namespace, op.key] = (op, _text(op))
                else:
                    raise ValueError(f"unknown operation: {type(op).__name__}")
                results.append(result)
            for op, text in puts.values():
                if op.value is None:
                    self._delete(op.namespace, op.key)
                else:
                    self._write(op.namespace, op.key, text)
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """As :meth:`batch`, in a thread."""
        return await asyncio.to_thread(self.batch, list(ops))

    def _directory(self, namespace: Iterable[str]) -> str:
        """The directory of a namespace.

        Raises:
            OSError: a link on the way leads elsewhere.
        """
        directory = os.path.join(self._root, *map(encode, namespace))
        if os.path.realpath(directory) != directory:
            raise OSError(f"cannot use {directory}: a link on its path leads elsewhere (remove the link)")
        return directory

    def _read(self, namespace: _Namespace, key: str) -> Item | None:
        path = os.path.join(self._directory(namespace), encode(key) + _SUFFIX)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        except (FileNotFoundError, NotADirectoryError):
            return None
        with open(descriptor, encoding="utf-8", newline="") as file:
            changed = os.fstat(descriptor).st_mtime_ns
            try:
                value = json.loads(file.read().replace("\n\t", "\n"), strict=False)
            except ValueError as error:
                raise ValueError(f"{path} is not an item: {error}") from None
        if not isinstance(value, dict):
            raise ValueError(f"{path} is not an item: it has no JSON object")
        created = _order(path) or changed
        return Item(
            value=value,
            key=key,
            namespace=namespace,
            created_at=_time(created),
            # The clock of a file system may be a little behind.
            updated_at=_time(max(created, changed)),
        )

    def _write(self, namespace: _Namespace, key: str, text: str) -> None:
        directory = self._directory(namespace)
        os.makedirs(directory, exist_ok=True)
        path = os.path.join(directory, encode(key) + _SUFFIX)
        new = os.path.join(directory, f".new-{uuid.uuid4().hex}")
        try:
            with open(new, "x", encoding="utf-8", newline="") as file:
                file.write(text)
            self._mark(os.path.join(directory, _ORDER))
            self._mark(_mark_of(path))
            os.replace(new, path)
        except BaseException:
            _unlink(new)
            raise

    def _mark(self, link: str) -> None:
        """Records the time of the first put, unless that was done."""
        self._last = max(self._last + 1, time.time_ns())
        try:
            # A link is not a note of an agent-memory.
            os.symlink(str(self._last), link)
        except FileExistsError:
            pass

    def _delete(self, namespace: _Namespace, key: str) -> None:
        path = os.path.join(self._directory(namespace), encode(key) + _SUFFIX)
        _unlink(path)
        _unlink(_mark_of(path))

    def _namespaces(self, prefix: _Namespace = ()) -> Iterator[tuple[int, _Namespace, list[str]]]:
        """The namespaces at and below a prefix: when each was created, and its keys in the order of their first put."""
        waiting = [(self._directory(prefix), tuple(prefix))]
        while waiting:
            directory, namespace = waiting.pop()
            keys: list[tuple[int, str]] = []
            try:
                entries = list(os.scandir(directory))
            except (FileNotFoundError, NotADirectoryError):
                continue
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    waiting.append((entry.path, (*namespace, decode(entry.name))))
                elif entry.name.endswith(_SUFFIX) and entry.is_file(follow_symlinks=False):
                    # A file of a person or a program may have no mark.
                    order = _order(entry.path) or entry.stat().st_mtime_ns
                    keys.append((order, decode(entry.name[: -len(_SUFFIX)])))
            created = _order_link(os.path.join(directory, _ORDER))
            if keys or created is not None:
                keys.sort()
                yield (keys[0][0] if created is None else created), namespace, [key for _, key in keys]

    def _search(self, op: SearchOp) -> list[SearchItem]:
        if op.query:
            places, left_out = self._recall(op.namespace_prefix, op.query)
        else:
            namespaces = sorted(self._namespaces(op.namespace_prefix))
            places = [(namespace, key) for _, namespace, keys in namespaces for key in keys]
            left_out = 0
        if op.filter:
            places = [place for place in places if self._has(place, op.filter)]
        if left_out and not 0 <= op.offset <= op.offset + op.limit <= len(places):
            raise NotImplementedError(
                f"{left_out} relevant items do not fit into a recall: "
                "search in a longer namespace, or with a smaller limit or offset"
            )
        items = [self._read(*place) for place in places[op.offset : op.offset + op.limit]]
        return [
            SearchItem(item.namespace, item.key, item.value, item.created_at, item.updated_at)
            for item in items
            # Another process may have deleted it.
            if item is not None
        ]

    def _has(self, place: _Place, wanted: dict[str, Any]) -> bool:
        """Whether an item is as a filter says."""
        item = self._read(*place)
        return item is not None and all(_matches(item.value.get(name), part) for name, part in wanted.items())

    def _recall(self, prefix: _Namespace, query: str) -> tuple[list[_Place], int]:
        """The items that a recall shows, and how many relevant notes it does not show."""
        directory = self._directory(prefix)
        if not os.path.lexists(os.path.join(self._root, ":stats")):
            raise NotImplementedError(
                f"a search with a query needs an agent-memory, and {self._root} is not in one "
                '(use Mount("agent-memory", …), or leave the query out)'
            )
        if not os.path.isdir(directory):
            return [], 0
        answer = invoke(["recall", f"--max-tokens={_RECALL_TOKENS}", "--", directory, query]).split("\n")
        places: list[_Place] = []
        shown = 0
        for line in answer:
            # No line of an item begins so: a tab follows each of its newlines.
            if line.startswith("## "):
                shown += 1
                path = line[3:]
                # In the root of a mount, paths begin with `/`.
                labels = path.lstrip("/").split("/")
                if labels[-1].endswith(_SUFFIX) and not any(label.startswith(".") for label in labels):
                    key = decode(labels.pop()[: -len(_SUFFIX)])
                    places.append(((*prefix, *map(decode, labels)), key))
        counts = re.match(r"# \d+ of (\d+) ", answer[0])
        return places, max(int(counts[1]) - shown, 0) if counts else 0

    def _list_namespaces(self, op: ListNamespacesOp) -> list[_Namespace]:
        found = {
            namespace if op.max_depth is None else namespace[: op.max_depth]
            for _, namespace, _ in self._namespaces()
            if all(_names(condition, namespace) for condition in op.match_conditions or ())
        }
        return sorted(found)[op.offset : op.offset + op.limit]


def _text(op: PutOp) -> str:
    """The value of a put as JSON in which newlines and tabs of texts stand as they are.

    A full-text index would take the ``n`` of an escaped newline for a part of the next word.
    """
    if op.ttl is not None:
        raise NotImplementedError("items do not expire: leave ttl out, and delete the item when it is no longer needed")
    if op.index is not None:
        raise NotImplementedError("the index has the whole value of each item: leave the argument index out")
    if op.value is None:
        return ""
    value = dict(op.value)
    _check(value)
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    text.encode()
    raw = {"\\n": "\n\t", "\\t": "\t"}
    return re.sub(r"\\.", lambda escape: raw.get(escape[0], escape[0]), text)


def _check(value: object) -> None:
    """Refuses keys that JSON would turn into texts."""
    if isinstance(value, dict):
        for key, part in value.items():
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r} of a value is not a text")
            _check(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            _check(part)


def _time(nanoseconds: int) -> datetime:
    return datetime.fromtimestamp(nanoseconds / 1e9, timezone.utc)


def _mark_of(path: str) -> str:
    """The link that records when an item was first put."""
    directory, name = os.path.split(path)
    return os.path.join(directory, "." + name)


def _order(path: str) -> int | None:
    """When an item was first put, in nanoseconds."""
    return _order_link(_mark_of(path))


def _order_link(link: str) -> int | None:
    try:
        return int(os.readlink(link))
    except (OSError, ValueError):
        return None


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except (FileNotFoundError, NotADirectoryError):
        pass


def _names(condition: MatchCondition, namespace: _Namespace) -> bool:
    """Whether a namespace begins or ends with the path of a condition, in which ``*`` is any label."""
    path = tuple(condition.path)
    if condition.match_type not in ("prefix", "suffix"):
        raise ValueError(f"unknown kind of match: {condition.match_type}")
    if len(path) > len(namespace):
        return False
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", label) for wanted, label in zip(path, part))


def _matches(value: Any, wanted: Any) -> bool:
    """Whether a part of an item is as a filter says: equal, or in the relation of operators such as ``$gt``."""
    if isinstance(wanted, dict):
        if any(name.startswith("$") for name in wanted):
            return all(_holds(value, operator, operand) for operator, operand in wanted.items())
        return isinstance(value, dict) and all(_matches(value.get(name), part) for name, part in wanted.items())
    if isinstance(wanted, (list, tuple)):
        return (
            isinstance(value, list)
            and len(value) == len(wanted)
            and all(_matches(one, other) for one, other in zip(value, wanted))
        )
    return bool(value == wanted)


def _holds(value: Any, operator: str, operand: Any) -> bool:
    if operator == "$eq":
        return bool(value == operand)
    if operator == "$ne":
        return bool(value != operand)
    if operator == "$gt":
        return float(value) > float(operand)
    if operator == "$gte":
        return float(value) >= float(operand)
    if operator == "$lt":
        return float(value) < float(operand)
    if operator == "$lte":
        return float(value) <= float(operand)
    raise ValueError(f"unknown operator of a filter: {operator}")
