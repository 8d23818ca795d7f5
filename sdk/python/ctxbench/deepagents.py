"""A mount as the backend of a LangChain ``deepagents`` agent. Needs the package ``deepagents``, 0.7 or newer."""

from __future__ import annotations

import os
from typing import Union

from deepagents.backends import FilesystemBackend


def backend(mount: Union[str, "os.PathLike[str]"]) -> FilesystemBackend:
    """The agent's files are those of a mount, or of any directory; ``/`` is its root, and no path leads out of it::

        with Mount("agent-memory", "avm.db", "avm", agent_id="akashi") as mount:
            agent = create_deep_agent(model=model, backend=backend(mount))

    On an ``agent-memory``, a read of ``/:recall?query=NVDA+risk&max_tokens=2000`` recalls notes.

    Raises:
        NotADirectoryError: there is no such directory.
    """
    root = os.path.realpath(mount)
    if not os.path.isdir(root):
        raise NotADirectoryError(f"cannot serve {root} to an agent: it is not a directory (mount it first)")
    return FilesystemBackend(root_dir=root, virtual_mode=True)
