"""Mounts as context managers, and what becomes of them however a block or a process ends."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import unittest
from pathlib import Path

from support import SDK, ScratchCase, mounts_under, needs_mounts

from ctxbench import CommandError, Mount

PROGRAM = os.environ.get("CTXBENCH_BIN", "ctxbench")


@needs_mounts
class MountTest(ScratchCase):
    def holder(self, path: Path, mount: str = "'memory', None") -> "subprocess.Popen[str]":
        """A Python that says `ready` inside the block of a mount, and stays there."""
        text = f"""
import sys, time, ctxbench
print("begins", flush=True)
with ctxbench.Mount({mount}, path={str(path)!r}):
    print("ready", flush=True)
    time.sleep(60)
"""
        environment = {**os.environ, "PYTHONPATH": str(SDK)}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([sys.executable, "-B", "-c", text], env=environment, text=True, **pipes)

    def no_mount_stays(self) -> None:
        deadline = time.monotonic() + 60
        while mounts_under(self.scratch):
            self.assertLess(time.monotonic(), deadline, "a mount stays")
            time.sleep(0.01)

    def test_files_are_there_in_the_block_and_in_the_store_after_it(self) -> None:
        path, store = self.directory("notes"), self.scratch / "my notes.db"
        for expected in ([], ["plan.md"]):
            with Mount("sqlite", store, path) as mount:
                self.assertEqual(os.listdir(mount), expected)
                (mount.path / "plan.md").write_text("first step")
            self.assertEqual(list(path.iterdir()), [])
        self.assertTrue(store.exists())

    def test_a_path_may_have_blanks_and_lead_over_links(self) -> None:
        real = self.directory("my folder")
        (real / "a mount").mkdir()
        (self.scratch / "link").symlink_to(real)
        with Mount("memory", None, self.scratch / "link" / "a mount") as mount:
            (mount.path / "a").touch()
            self.assertEqual(os.listdir(real / "a mount"), ["a"])
        self.assertEqual(os.listdir(real / "a mount"), [])

    def test_source_3s_shell_listing_works_on_a_mount(self) -> None:
        path = self.directory("avm")
        with Mount("agent-memory", self.scratch / "avm.db", path, agent_id="akashi"):
            (path / "memory/private/akashi/rsi_rule.md").write_text("RSI > 70 → exit\n")
            self.assertEqual((path / "memory/private/akashi/rsi_rule.md").read_text(), "RSI > 70 → exit\n")
            self.assertIn("rsi_rule.md", (path / ":search?RSI").read_text())
            self.assertIn("RSI > 70", (path / ":recall?query=RSI+risk&max_tokens=2000").read_text())
            self.assertIn("notes: 1", (path / ":stats").read_text())

    def test_source_4s_two_hosts_see_each_others_notes(self) -> None:
        server = subprocess.Popen(
            [PROGRAM, "s3", "serve", "--until-stdin-ends", "--dir", self.directory("bucket")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.addCleanup(server.communicate)
        where = json.loads(server.stdout.readline())
        self.set_variable("AWS_ACCESS_KEY_ID", where["access_key"])
        self.set_variable("AWS_SECRET_ACCESS_KEY", where["secret_key"])
        options = {"endpoint": where["endpoint"], "region": where["region"], "agent_id": "myagent", "poll": 50}
        hosts = [self.directory("laptop"), self.directory("cloud")]
        laptop, cloud = [Mount("s3", where["bucket"], host, writer=host.name, **options) for host in hosts]
        with laptop, cloud:
            (laptop.path / "notes.md").write_text("seen on the way\n")
            deadline = time.monotonic() + 60
            note = cloud.path / "notes.md"
            while not (note.exists() and note.read_text() == "seen on the way\n"):
                self.assertLess(time.monotonic(), deadline, "the note did not arrive")
                time.sleep(0.05)

    def test_a_mount_that_fails_says_what_the_command_says(self) -> None:
        full = self.directory("full")
        (full / "file").touch()
        empty = self.directory("empty")
        for reason, make in [
            ("not empty", lambda: Mount("memory", None, full)),
            ("No such file", lambda: Mount("memory", None, self.scratch / "missing")),
            ("unknown store sqlit", lambda: Mount("sqlit", None, empty)),
            ("--agent-id", lambda: Mount("memory", None, empty, agent_id="kim")),
            ('agent "-x y" is not valid', lambda: Mount("agent-memory", None, empty, agent_id="-x y")),
        ]:
            with self.subTest(reason):
                with self.assertRaises(CommandError) as failed, make():
                    self.fail("it was mounted")
                self.assertIn(reason, failed.exception.stderr)
                self.assertIn(reason, str(failed.exception))
                self.assertNotEqual(failed.exception.returncode, 0)
        for make in [lambda: Mount("memory", "store", empty), lambda: Mount("sqlite", None, empty, daemon=True)]:
            with self.assertRaises(TypeError):
                make()

    def test_an_exception_in_the_block_unmounts_and_goes_on(self) -> None:
        path = self.directory("notes")
        with self.assertRaisesRegex(KeyError, "mine"), Mount("memory", None, path):
            raise KeyError("mine")
        self.assertEqual(mounts_under(self.scratch), [])

    def test_a_signal_at_any_time_leaves_no_mount(self) -> None:
        path = self.directory("notes")
        for sent in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            for moment in ("ready", 0.0, 0.01, 0.03, 0.1, 0.2):
                with self.subTest(sent=sent, moment=moment), self.holder(path) as process:
                    self.assertEqual(process.stdout.readline(), "begins\n")
                    if moment == "ready":
                        self.assertEqual(process.stdout.readline(), "ready\n")
                        self.assertNotEqual(mounts_under(self.scratch), [])
                    else:
                        time.sleep(moment)
                    process.send_signal(sent)
                    process.communicate(timeout=60)
                    if sent == signal.SIGINT and moment == "ready":
                        self.assertEqual(mounts_under(self.scratch), [], "the end of the block unmounts")
                    self.no_mount_stays()

    def test_ctrl_c_ends_a_mount_whose_server_does_not_answer(self) -> None:
        self.set_variable("AWS_ACCESS_KEY_ID", "key")
        self.set_variable("AWS_SECRET_ACCESS_KEY", "secret")
        with socket.create_server(("127.0.0.1", 0)) as silent:
            endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
            mount = f"'s3', 'bucket', endpoint={endpoint!r}, agent_id='a'"
            with self.holder(self.directory("notes"), mount) as process:
                self.assertEqual(process.stdout.readline(), "begins\n")
                accepted = silent.accept()[0]
                self.addCleanup(accepted.close)
                began = time.monotonic()
                process.send_signal(signal.SIGINT)
                process.communicate(timeout=60)
        self.assertLess(time.monotonic() - began, 20)
        self.no_mount_stays()

    def test_a_mount_in_use_is_an_error_and_ends_all_the_same(self) -> None:
        path = self.directory("notes")
        with self.assertRaises(CommandError) as busy:
            with Mount("memory", None, path) as mount:
                file = open(mount.path / "a", "wb", buffering=0)
        self.assertIn("in use", busy.exception.stderr)
        self.assertEqual(mounts_under(self.scratch), [])
        with self.assertRaises(OSError), file:
            file.write(b"too late")

    def test_a_crashed_daemon_is_an_error_and_its_mount_is_removed(self) -> None:
        path = self.directory("notes")
        with self.assertRaises(CommandError) as crashed:
            with Mount("memory", None, path) as mount:
                mount._child.process.kill()
                mount._child.process.wait()
        self.assertEqual(crashed.exception.returncode, -signal.SIGKILL)
        self.assertEqual(mounts_under(self.scratch), [])

    def test_a_mount_that_the_user_has_ended_is_no_error(self) -> None:
        path = self.directory("notes")
        with Mount("memory", None, path):
            subprocess.run([PROGRAM, "unmount", path], check=True, capture_output=True)
        self.assertEqual(mounts_under(self.scratch), [])


if __name__ == "__main__":
    unittest.main()
