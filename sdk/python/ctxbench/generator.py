"""Generators of ``llm-generate`` in Python, with the interface of source 2's plug-ins (docs/LLM.md).

A script defines one and calls :func:`run`::

    #!/usr/bin/env python3
    from ctxbench.generator import BaseContentGenerator, run

    class Index(BaseContentGenerator):
        def generator_name(self):
            return "index"

        def generate(self, path, node, fs_structure):
            return "".join(f"* {name}\\n" for name in fs_structure)

    run(Index())

``ctxbench mount llm-generate --generator index.toml`` calls it; the file says ``input = "json"``.
"""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Dict, Mapping, Optional


@dataclass
class FileNode:
    """A node of the tree."""

    #: ``file``, ``directory``, ``symlink`` or ``special``.
    type: str
    #: The text of a generated file, if it is within ``--context-bytes``; shorter than ``st_size`` if it was cut. The
    #: target of a link.
    content: Optional[str] = None
    #: ``st_mode`` (permission bits), ``st_size``, ``st_uid``, ``st_gid``, ``st_mtime``.
    attrs: Dict[str, int] = field(default_factory=dict)
    #: Extended attributes that are UTF-8, such as ``user.llmfs.prompt``.
    xattrs: Dict[str, str] = field(default_factory=dict)
    #: Whether the file waits for its first read, and is empty until then.
    is_waiting: bool = False


class BaseContentGenerator(ABC):
    """Writes the content of files."""

    #: The prompt of the file's directory, and that of the file.
    prompt: Optional[str] = None
    about: Optional[str] = None

    @abstractmethod
    def generator_name(self) -> str:
        """The ``name`` of the definition."""

    @abstractmethod
    def generate(self, path: str, node: FileNode, fs_structure: Dict[str, FileNode]) -> str:
        """The content of the file at ``path``, which must not be empty; ``fs_structure`` has all nodes by path."""


def run(generator: BaseContentGenerator) -> None:
    """Reads a request of the mount on standard input, and writes the content on standard output.

    Raises:
        ValueError: standard input has no request, or one for another generator.
        TypeError: the content is not a text.
    """
    request = _request()
    texts = {file["path"]: file["text"] for file in request["context"]}
    structure = {entry["path"]: _node(entry, texts) for entry in request["tree"]}
    path: str = request["path"]
    node = structure.get(path)
    if node is None:
        raise ValueError(f"the tree has no {path}: it was moved or removed meanwhile")
    name, given = generator.generator_name(), node.xattrs.get("user.llmfs.generator")
    if given not in (None, name):
        raise ValueError(f"{path} has the generator {given}, and this is {name}: use one name in script and definition")
    generator.prompt, generator.about = request["prompt"], request["about"]
    content = generator.generate(path, node, structure)
    if not isinstance(content, str):
        raise TypeError(f"generate must return a text, not {type(content).__name__}")
    sys.stdout.buffer.write(content.encode())


def _request() -> Dict[str, Any]:
    try:
        request = json.loads(sys.stdin.buffer.read())
    except ValueError:
        request = None
    if not isinstance(request, dict) or "tree" not in request:
        raise ValueError('standard input has no request of the mount: the definition must say input = "json"')
    return request


def _node(entry: Mapping[str, Any], texts: Mapping[str, str]) -> FileNode:
    attrs = {f"st_{name}": entry[name] for name in ("mode", "size", "uid", "gid", "mtime")}
    content = entry.get("target", texts.get(entry["path"]))
    return FileNode(entry["kind"], content, attrs, dict(entry["attributes"]), entry["is_waiting"])
