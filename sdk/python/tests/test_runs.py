"""Runs, reports and tables."""

import contextlib
import csv
import io
import os
import signal
import subprocess
import sys
import time
import unittest
from importlib.util import find_spec

from support import SDK, ScratchCase, mounts_under, needs_mounts

import ctxbench
from ctxbench import CommandError

#: The options of a small run.
SMALL = {
    "workload": ["micro/write-1k"],
    "state": "hot",
    "backend": ["memory"],
    "epochs": 3,
    "rounds": 2,
    "no_probes": True,
    "policy": "none",
    "seed": 7,
}


class RunsTest(ScratchCase):
    def small_run(self) -> ctxbench.Report:
        with contextlib.redirect_stderr(io.StringIO()) as shown:
            done = ctxbench.run(budget=20, out=self.scratch / "run", scratch_dir=self.directory("work"), **SMALL)
        self.assertIn(f"results in {done.run}", shown.getvalue())
        return done

    @needs_mounts
    def test_a_run_its_report_and_its_cells_are_one(self) -> None:
        done = self.small_run()
        self.assertEqual(done.run, self.scratch / "run")
        self.assertTrue(done.page.exists())
        self.assertEqual(ctxbench.report(done.run), done)
        rows = ctxbench.cells(done.run)
        with open(done.run / "cells.csv", newline="") as file:
            written = list(csv.DictReader(file))
        self.assertEqual(len(rows), len(written))
        self.assertEqual({row["arm"] for row in rows}, {"direct", "direct-again", "memory"})
        for row, text in zip(rows, written):
            self.assertEqual(list(row), list(text))
            for name, value in row.items():
                with self.subTest(name):
                    self.assertEqual(text[name], "" if value is None else text[name])
                    if isinstance(value, (int, float)):
                        self.assertEqual(float(text[name]), value)
        direct = next(row for row in rows if row["arm"] == "direct")
        self.assertEqual((direct["workload"], direct["metric"], direct["ratio"]), ("micro/write-1k", "write", None))
        self.assertIsInstance(direct["calls"], int)
        self.assertIsInstance(direct["typical_ns"], float)
        self.table_is_never_older_than_the_records(done, rows)
        self.frames_have_the_same_rows(done, rows)

    def table_is_never_older_than_the_records(self, done: ctxbench.Report, rows: list) -> None:
        table = done.run / "cells.csv"
        table.unlink()
        self.assertEqual(ctxbench.cells(done.run), rows)
        table.write_text("an,earlier\ntable,1\n")
        os.utime(table, (0, 0))
        self.assertEqual(ctxbench.cells(done.run), rows)

    def frames_have_the_same_rows(self, done: ctxbench.Report, rows: list) -> None:
        for name in ("pandas", "polars"):
            with self.subTest(name):
                if find_spec(name) is None:
                    with self.assertRaises(ImportError):
                        ctxbench.cells(done.run, frame=name)
                    self.skipTest(f"{name} is not installed")
                frame = ctxbench.cells(done.run, frame=name)
                self.assertEqual(list(frame.columns), list(rows[0]))
                self.assertEqual(list(frame["arm"]), [row["arm"] for row in rows])
                self.assertEqual(list(frame["typical_ns"]), [row["typical_ns"] for row in rows])
                memory = rows.index(next(row for row in rows if row["arm"] == "memory"))
                self.assertEqual(frame["ratio"][memory], rows[memory]["ratio"])
        with self.assertRaisesRegex(ValueError, "'dicts', 'pandas' or 'polars'"):
            ctxbench.cells(done.run, frame="arrow")

    def test_a_command_that_fails_says_what_it_says(self) -> None:
        with self.assertRaisesRegex(CommandError, "no-such-suite"), contextlib.redirect_stderr(io.StringIO()):
            ctxbench.run("no-such-suite", out=self.scratch / "run")
        for read in (ctxbench.report, ctxbench.cells):
            with self.assertRaisesRegex(CommandError, "missing"):
                read(self.scratch / "missing")
        self.set_variable("CTXBENCH_BIN", str(self.scratch / "missing"))
        with self.assertRaisesRegex(FileNotFoundError, "set CTXBENCH_BIN"):
            ctxbench.report(self.scratch)

    @needs_mounts
    def test_ctrl_c_stops_a_run_in_order_and_it_can_be_resumed(self) -> None:
        run, work = self.scratch / "run", self.directory("work")
        options = {**SMALL, "rounds": 60, "budget": 60, "out": str(run), "scratch_dir": str(work)}
        text = f"import ctxbench; ctxbench.run(**{options!r})"
        environment = {**os.environ, "PYTHONPATH": str(SDK)}
        command = [sys.executable, "-B", "-c", text]
        with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
            deadline = time.monotonic() + 60
            samples = run / "samples.jsonl"
            while not (samples.exists() and samples.stat().st_size):
                self.assertLess(time.monotonic(), deadline, "the run does not begin")
                time.sleep(0.02)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        self.assertIn("KeyboardInterrupt", errors)
        self.assertIn("ctxbench run --resume", errors, "the command's own words are shown")
        self.assertEqual(mounts_under(self.scratch), [])
        self.assertTrue((run / "plan.toml").exists())


if __name__ == "__main__":
    unittest.main()
