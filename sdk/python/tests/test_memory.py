"""An agent's memory, as source 3's listing uses it, and what the listing leaves open."""

import os
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

from support import SDK, ScratchCase, mounts_under, needs_mounts

from ctxbench import CommandError, Memory, ToolError, agent_memory

#: The calls of source 3's listing; only its import is another one.
LISTING = """
from ctxbench import Memory as AVM
avm = AVM()
agent = avm.agent_memory("akashi")
agent.remember(
"RSI > 70 on NVDA → average -12% in 5 days",
title="nvda_rsi_rule", # optional filename
importance=0.9, # 0.0–1.0, affects recall ranking
tags=["trading", "nvda"]
)
context = agent.recall("NVDA risk", max_tokens=2000)
agent.remember(
"Market regime: risk-off, reduce exposure",
namespace="market" # → /memory/shared/market/
)
"""


@needs_mounts
class MemoryTest(ScratchCase):
    def python(self, text: str, **more) -> "subprocess.Popen[str]":
        """Another Python, with the package and a data directory in the scratch."""
        environment = {**os.environ, "PYTHONPATH": str(SDK), "XDG_DATA_HOME": str(self.scratch)}
        command = [sys.executable, "-B", "-c", text]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, env=environment, text=True, **pipes, **more)

    def store(self) -> Memory:
        memory = Memory(self.scratch / "store")
        self.addCleanup(memory.close)
        return memory

    def test_source_3s_listing_runs_with_only_its_import_changed(self) -> None:
        with self.python(LISTING + "print(context)") as listing:
            said, errors = listing.communicate(timeout=120)
        self.assertEqual((listing.returncode, errors), (0, ""))
        self.assertIn("/memory/private/akashi/nvda_rsi_rule.md", said)
        self.assertIn("RSI > 70 on NVDA → average -12% in 5 days", said)
        self.assertEqual(mounts_under(self.scratch), [], "the end of the process unmounts")
        # Another agent finds the shared note, and not the private one.
        self.set_variable("XDG_DATA_HOME", str(self.scratch))
        with Memory() as memory:
            found = memory.agent_memory("kim").recall("NVDA risk market regime")
        self.assertIn("## /memory/shared/market/", found)
        self.assertIn("reduce exposure", found)
        self.assertNotIn("RSI", found)

    def test_each_argument_has_its_effect(self) -> None:
        agent = self.store().agent_memory("akashi")
        path = agent.remember("Exit at RSI 70", title="rule", tags=["trading"], importance=1)
        self.assertEqual(path, "/memory/private/akashi/rule.md")
        self.assertEqual(agent.remember("Exit later", title="rule"), "/memory/private/akashi/rule-2.md")
        self.assertEqual(agent.remember("Exit", title="r", namespace="market"), "/memory/shared/market/r.md")
        self.assertEqual(agent.remember("Exit the lift"), "/memory/private/akashi/exit-the-lift.md")
        agent.remember("Exit now", title="soon", ttl=1)
        agent.remember("Exit in a week", title="week", ttl="7d")
        time.sleep(2.1)
        found = agent.recall("exit")
        self.assertNotIn("soon.md", found)
        self.assertIn("week.md", found)
        first = [line for line in agent.recall("exit", strategy="IMPORTANCE").splitlines() if line.startswith("## ")][0]
        self.assertEqual(first, "## /memory/private/akashi/rule.md")
        for number in range(40):
            agent.remember(f"Exit number {number}: " + "the market is closed and the lift is slow " * 5)
        few, many = agent.recall("exit", max_tokens=200), agent.recall("exit", max_tokens=2000)
        self.assertLess(len(few) * 3, len(many))

    def test_a_wrong_argument_is_refused_with_the_reason_and_the_memory_goes_on(self) -> None:
        agent = self.store().agent_memory("akashi")
        for reason, call in [
            ("`text` is empty", lambda: agent.remember(" ")),
            ("importance is 2", lambda: agent.remember("x", importance=2)),
            ("the tag", lambda: agent.remember("x", tags=["a b"])),
            ("the namespace", lambda: agent.remember("x", namespace="../private/kim")),
            ("the title", lambda: agent.remember("x", title="a/b")),
            ("ttl", lambda: agent.remember("x", ttl="soon")),
            ("max_tokens is 1;", lambda: agent.recall("x", max_tokens=1)),
            ("unknown variant `newest`", lambda: agent.recall("x", strategy="newest")),
        ]:
            with self.subTest(reason), self.assertRaisesRegex(ToolError, reason):
                call()
        with self.assertRaisesRegex(TypeError, "list of words"):
            agent.remember("x", tags="trading")
        self.assertIn("x.md", agent.remember("x"))

    def test_agents_of_one_store_take_turns_and_keep_their_notes_apart(self) -> None:
        memory = self.store()
        one, other = memory.agent_memory("akashi"), memory.agent_memory("kim")
        one.remember("my secret plan")
        other.remember("my other plan")
        self.assertIn("secret", one.recall("plan"))
        self.assertNotIn("secret", other.recall("plan"))
        again = agent_memory("akashi", store=self.scratch / "store")
        self.assertIn("secret", again.recall("plan"))

    def test_a_store_that_another_process_has_open_is_refused(self) -> None:
        self.store().agent_memory("akashi")
        text = f"import ctxbench; ctxbench.agent_memory('kim', store={str(self.scratch / 'store')!r})"
        with self.python(text) as second:
            _, errors = second.communicate(timeout=120)
        self.assertNotEqual(second.returncode, 0)
        self.assertIn("CommandError", errors)
        self.assertIn("another process has it open", errors)

    def test_a_forked_process_does_not_disturb_its_parent(self) -> None:
        text = """
import os
import ctxbench
agent = ctxbench.Memory().agent_memory("akashi")
child = os.fork()
if child == 0:
    try:
        agent.remember("of the child")
    except ctxbench.CommandError as error:
        os._exit(7 if "another process has it open" in str(error) else 8)
    os._exit(9)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
agent.remember("of the parent")
assert "of the parent" in agent.recall("parent")
"""
        with self.python(text) as process:
            _, errors = process.communicate(timeout=120)
        self.assertEqual((process.returncode, errors), (0, ""))

    def test_an_agents_name_that_is_no_name_is_refused_with_the_commands_error(self) -> None:
        with self.assertRaises(CommandError) as refused:
            Memory(self.scratch / "store").agent_memory("../kim")
        self.assertIn("../kim", refused.exception.stderr)
        self.assertFalse((self.scratch / "store").exists())

    def test_a_memory_goes_on_after_its_server_was_killed(self) -> None:
        from ctxbench import memory as module

        memory = self.store()
        agent = memory.agent_memory("akashi")
        agent.remember("a kept note")
        server = module._stores[str(memory.directory)]._server
        server._process.kill()
        with self.assertRaises(CommandError):
            agent.recall("note")
        # Its mount ends by itself.
        wait_until_free(memory.directory)
        self.assertIn("a kept note", agent.recall("note"))

    def test_a_killed_or_interrupted_process_leaves_no_mount(self) -> None:
        text = LISTING + "print('ready', flush=True)\nimport time; time.sleep(60)"
        for sent in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
            with self.subTest(sent), self.python(text) as process:
                self.assertEqual(process.stdout.readline(), "ready\n")
                self.assertNotEqual(mounts_under(self.scratch), [])
                process.send_signal(sent)
                process.communicate(timeout=60)
                wait_until_free(self.scratch / "ctxbench" / "memory")
                self.assertEqual(mounts_under(self.scratch), [])


def wait_until_free(store: Path) -> None:
    """Waits until the mount of a killed process has ended."""
    deadline = time.monotonic() + 60
    while True:
        try:
            with Memory(store) as memory:
                memory.agent_memory("akashi")
            return
        except CommandError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


if __name__ == "__main__":
    unittest.main()
