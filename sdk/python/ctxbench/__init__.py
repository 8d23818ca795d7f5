"""An agent's memory, mounts and measurements, over the program ``ctxbench``.

The package runs the program that ``CTXBENCH_BIN`` names, or the ``ctxbench`` on ``PATH``, and reads its
JSON and MCP.
"""

from ._command import CommandError
from ._errors import ToolError
from .memory import AgentMemory, Memory, agent_memory
from .mount import Mount
from .runs import Report, cells, report, run
from .state import StateFiles

__all__ = [
    "AgentMemory",
    "CommandError",
    "Memory",
    "Mount",
    "Report",
    "StateFiles",
    "ToolError",
    "agent_memory",
    "cells",
    "report",
    "run",
]
