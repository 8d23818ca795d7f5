"""A client of ``ctxbench mcp``: JSON-RPC, one message a line, over the pipes of a child process."""

from __future__ import annotations

import json
import subprocess
from typing import Any, Dict, Mapping, Optional

from ._command import Child, CommandError
from ._errors import ToolError

#: Seconds that a server may take to end after the end of its input, and then after SIGTERM.
_END_OF_INPUT = 5.0
_TERMINATED = 120.0


class Server:
    """A running ``ctxbench mcp``. It ends, and unmounts what it has mounted, when its input or this process ends.

    Not for several threads at once. After any exception but ``ToolError``, the only valid call is ``close``.
    """

    def __init__(self, *arguments: str) -> None:
        """Starts the server, and waits until it answers.

        Raises:
            CommandError: it does not start; the error has its standard error.
            FileNotFoundError: there is no program ``ctxbench``.
        """
        self._number = 0
        self._child = Child(["mcp", *arguments])
        self._process = self._child.process
        try:
            client = {"name": "ctxbench-python", "version": "1"}
            self._request("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client})
            self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        except BaseException:
            self._end()
            self._child.release()
            raise

    def call(self, tool: str, arguments: Mapping[str, object]) -> str:
        """Calls a tool, and returns the text of its answer.

        Raises:
            ToolError: the tool refused the call.
            CommandError: the server has ended.
        """
        result = self._request("tools/call", {"name": tool, "arguments": arguments})
        text = "\n".join(part["text"] for part in result["content"] if part["type"] == "text")
        if result.get("isError"):
            raise ToolError(text)
        return text

    def close(self) -> None:
        """Ends the server, and waits until its mount is flushed and gone. May be called twice.

        Raises:
            CommandError: the last flush or the unmount failed.
        """
        if self._child.is_released:
            return
        code = self._end()
        error = self._child.failure(code)
        self._child.release()
        if code != 0:
            raise error

    def _end(self) -> Optional[int]:
        """Ends the process, and returns its exit code; ``None`` if it still runs."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.close()
        except OSError:
            pass  # It has ended before it read everything.
        try:
            process.wait(_END_OF_INPUT)
        except subprocess.TimeoutExpired:
            # A process that this one has forked still holds the input, or a call has not ended.
            process.terminate()
            try:
                process.wait(_TERMINATED)
            except subprocess.TimeoutExpired:
                return None
        process.stdout.close()
        return process.returncode

    def _send(self, message: Mapping[str, object]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def _request(self, method: str, parameters: Mapping[str, object]) -> Dict[str, Any]:
        assert self._process.stdout is not None
        self._number += 1
        line = b""
        try:
            self._send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": parameters})
            line = self._process.stdout.readline()
        except BrokenPipeError:
            pass
        if not line.endswith(b"\n"):
            raise self._child.failure(self._end())
        answer = json.loads(line)
        if "error" in answer:
            raise ToolError(answer["error"]["message"])
        if answer.get("id") != self._number:
            raise CommandError(self._child.command, self._end(), f"unexpected answer: {line[:400]!r}")
        result: Dict[str, Any] = answer["result"]
        return result
