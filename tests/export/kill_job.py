"""The job of `test_kills`: exports that are killed at a line of the export's code, each in a fork of this process.

    kill_job.py TIER FOLDER KIND FIRST STRIDE

Counts the lines that an export runs through, in all its threads; then, for every STRIDE-th of them from FIRST on,
exports into a folder of its own until that line, dies by SIGKILL, notes which files are visible, and exports again to
the end. No thread lives in this process when it forks. Prints JSON: line number → visible files.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from dying import in_fork
from scenes.exports import parquet_files, target_of

import offload_core.reading.export
import pulsar_offload
from offload_core.reading.export.delta_target import DeltaTarget
from offload_core.reading.export.iceberg_target import IcebergTarget
from offload_core.storage.executors import ThreadExecutor
from pulsar_offload import open_tier, scan

CODE = str(Path(offload_core.reading.export.__file__).parent)
DeltaTarget.commit_bytes = IcebergTarget.commit_bytes = 1  # as many commits as there are tasks


def export(tier: Path, folder: Path, kind: str) -> None:
    with open_tier(tier) as reader:
        pulsar_offload.export(
            reader,
            topics="acme/cold/orders",
            **target_of(kind, folder),
            file_bytes=4096,
            executor=ThreadExecutor(1),
        )


def at_each_line(act: Callable[[int], None]) -> None:
    """Call `act` with the number of each line of the export's code that is reached from here on."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(CODE):
            return None
        if event == "line":
            count += 1
            act(count)
        return trace

    threading.settrace(trace)
    sys.settrace(trace)


def count_lines(tier: Path, folder: Path, kind: str) -> int:
    counts = folder / "lines"

    def work() -> None:
        numbers = []
        at_each_line(numbers.append)
        export(tier, folder / "whole", kind)
        counts.write_text(str(max(numbers)))

    assert in_fork(work) == 0
    return int(counts.read_text())


def main(tier: Path, folder: Path, kind: str, first: int, stride: int) -> None:
    with open_tier(tier) as reader:
        assert scan(reader).to_table().num_rows  # loads the kernels once for all forks
    lines = count_lines(tier, folder, kind)
    visible: dict[int, dict[str, int]] = {}

    def killed(line: int, target: Path) -> None:
        def act(reached: int) -> None:
            if reached == line:
                os.kill(os.getpid(), signal.SIGKILL)

        at_each_line(act)
        export(tier, target, kind)

    for line in range(first, lines + 1, stride):
        target = folder / str(line)
        code = in_fork(lambda line=line, target=target: killed(line, target))
        # Threads take turns differently each time: what was the last line may not be reached.
        assert code in (0, -signal.SIGKILL), code
        visible[line] = parquet_files(target)
        assert in_fork(lambda target=target: export(tier, target, kind)) == 0
    print(json.dumps(visible))


main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
