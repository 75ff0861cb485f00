"""Run all benchmarks, or those named: `python -m benchmarks [entries messages …]`, see `SUITES`.

Each runs in a process of its own, so that none warms or burdens another. A table is printed, and the figures are
written to `.bench/results.json`. Exit code 1 if a ratio is below its target.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import subprocess
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.measure import Result

SUITES = (
    "entries",
    "messages",
    "memory",
    "planning",
    "times",
    "spark",
    "workers",
    "stores",
    "any_filesystem",
    "java",
    "mapfiles",
    "broker",
    "bookkeeper",
    "export",
    "freshness",
    "schemas",
    "hot",
    "offload",
    "offload_filter",
    "streaming",
    "streamed_topics",
    "topics",
    "records",
    "reads",
    "verify",
    "listing",
    "gc",
    "relocate",
)
FOLDER = Path(".bench")


def main() -> None:
    """Run the suites and show their results."""
    chosen = sys.argv[1:] or list(SUITES)
    if unknown := set(chosen) - set(SUITES):
        sys.exit(f"no such benchmark: {', '.join(sorted(unknown))}. Known: {', '.join(SUITES)}")
    FOLDER.mkdir(exist_ok=True)
    console = Console()
    console.print(f"{machine()}, Python {platform.python_version()}, {datetime.now(UTC):%Y-%m-%d}")
    results = []
    for suite in chosen:
        table = Table(
            "benchmark", "ours", "peer", "ratio", "target", "", title=suite, title_justify="left", box=None
        )
        for result in run_apart(suite):
            results.append(result)
            ratio = f"{result.ratio:.2f}"
            table.add_row(result.name, result.ours, result.peer, ratio, result.target, result.verdict)
        console.print(table)
    (FOLDER / "results.json").write_text(json.dumps([asdict(result) for result in results], indent=2))
    sys.exit(any(result.verdict == "missed" for result in results))


def run_apart(suite: str) -> list[Result]:
    """The results of one suite, from a process of its own."""
    code = f"import benchmarks.__main__ as m; m.run_here({suite!r})"
    path = FOLDER / f"{suite}.json"
    path.unlink(missing_ok=True)
    subprocess.run([sys.executable, "-c", code], check=True)
    return [Result(**fields) for fields in json.loads(path.read_text())]


def run_here(suite: str) -> None:
    """Run one suite in this process, and leave its results in a file."""
    module = importlib.import_module(f"benchmarks.{suite}")
    results = [asdict(result) for result in module.run(FOLDER)]
    (FOLDER / f"{suite}.json").write_text(json.dumps(results))


def machine() -> str:
    """The machine in a few words."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    processor = names[0] if names else platform.processor() or platform.machine()
    return f"{os.cpu_count()} cores of {processor}, {platform.system()}"


if __name__ == "__main__":
    main()
