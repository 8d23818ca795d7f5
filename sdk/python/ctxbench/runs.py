"""Measurements and their results, for notebooks."""

from __future__ import annotations

import csv
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Union

from ._command import flags, invoke

#: A run directory.
RunDir = Union[str, "os.PathLike[str]"]

#: A value of a table: text, a count, a figure, or nothing.
Value = Union[str, int, float, None]

#: The columns of ``cells.csv`` that are text even where they look like numbers.
_TEXT_COLUMNS = frozenset(["workload", "state", "metric", "arm", "verdict"])

#: The files that a run writes, and from which a report derives the others.
_RECORDS = ("samples.jsonl", "cells.jsonl")


@dataclass(frozen=True)
class Report:
    """The answer of a run."""

    #: The run directory.
    run: Path
    #: The page for a browser.
    page: Path
    #: The answer: ``uses``, ``calls``, ``passes``, ``losses``, ``missing``, as in docs/report.schema.json.
    answer: Dict[str, Any]


def run(suite: Optional[str] = None, **options: object) -> Report:
    """Measures a suite (``ctxbench run``), and reports it. Progress goes to standard error.

    Ctrl-C stops the run in order; ``run(resume=DIR)`` continues it.

    Args:
        suite: a built-in suite or the path of a suite file; the suite ``default`` if it is missing.
        options: the options of ``ctxbench run``: ``budget=20`` (seconds), ``backend=["sqlite", "s3"]``,
            ``no_probes=True``.

    Raises:
        CommandError: the run failed; the error has the command's standard error.
        KeyboardInterrupt: the user stopped it.
        FileNotFoundError: there is no program ``ctxbench``.
    """
    words = flags({"suite": suite, **options})
    return _report(invoke(["run", "--format=json", *words], echoes=True))


def report(run_dir: RunDir, **options: object) -> Report:
    """Writes the report of a run again (``ctxbench report``), and returns its answer. It measures nothing.

    Args:
        run_dir: the run directory, not that of a fault run.
        options: the options of ``ctxbench report``: ``policy="coding-agent"``.

    Raises:
        CommandError: the directory has no readable run; the error has the command's standard error.
        ValueError: it is a fault run.
        FileNotFoundError: there is no program ``ctxbench``.
    """
    return _report(invoke(["report", "--format=json", *flags(options), "--", os.path.abspath(run_dir)]))


def _report(text: str) -> Report:
    printed = json.loads(text)
    if "answer" not in printed:
        raise ValueError(f"{printed.get('run')} is a fault run, which has no answer: read {printed.get('report')}")
    return Report(Path(printed["run"]), Path(printed["report"]), printed["answer"])


def cells(run_dir: RunDir, frame: str = "dicts") -> Any:
    """The figures of a run: a row for each arm and kind of call in a cell (``cells.csv``).

    Columns that end in ``_ns`` are nanoseconds, ``ratio`` is that to the baseline, and ``verdict`` compares
    with it. A figure that the run does not have is ``None`` (in a frame: missing). If the run has no report
    yet, or records that are newer than its report, the report is written first.

    Args:
        run_dir: the run directory.
        frame: ``dicts`` (a list of dictionaries), ``pandas`` or ``polars`` (a ``DataFrame``).

    Raises:
        ValueError: ``frame`` has another value, or it is a fault run.
        ImportError: pandas or polars is not installed.
        CommandError: the directory has no readable run.
    """
    if frame not in ("dicts", "pandas", "polars"):
        raise ValueError(f"frame is {frame!r}; it must be 'dicts', 'pandas' or 'polars'")
    directory = Path(os.path.abspath(run_dir))
    table = directory / "cells.csv"
    if not _is_current(table, [directory / name for name in _RECORDS]):
        report(directory)
    with open(table, newline="", encoding="utf-8") as file:
        rows = csv.reader(file)
        names = next(rows)
        columns = list(zip(*rows)) or [()] * len(names)
    typed = {name: _values(name, column) for name, column in zip(names, columns)}
    if frame == "pandas":
        import pandas

        return pandas.DataFrame(typed)
    if frame == "polars":
        import polars

        return polars.DataFrame(typed)
    return [dict(zip(typed, row)) for row in zip(*typed.values())]


def _is_current(table: Path, records: Sequence[Path]) -> bool:
    if not table.exists():
        return False
    written = table.stat().st_mtime_ns
    return all(record.stat().st_mtime_ns <= written for record in records if record.exists())


def _values(name: str, column: Sequence[str]) -> List[Value]:
    """A column in one type: integers, else numbers, else text. An empty field of numbers is ``None``."""
    if name not in _TEXT_COLUMNS:
        for number in (int, float):
            try:
                return [number(field) if field else None for field in column]
            except ValueError:
                continue
    return [field or None for field in column] if name == "verdict" else list(column)
