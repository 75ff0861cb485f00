"""The job of `test_kills`: exports that are killed at a line of the export's code, each in a fork of this process.

    kill_job.py TIER FOLDER KIND FIRST STRIDE

Notes the lines that an export runs through, in all its threads. Each is a place to die at: the first, the second and
the last time that it is reached. For every STRIDE-th place from FIRST on, exports into a folder of its own until then,
dies by SIGKILL, notes which files are visible, and exports again to the end. No thread lives in this process when it
forks. Prints JSON: place → visible files.
"""

import json
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

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


def export(tier: Path, folder: Path, kind: str):
    with open_tier(tier) as reader:
        pulsar_offload.export(
            reader,
            topics="acme/cold/orders",
            **target_of(kind, folder),
            file_bytes=4096,
            executor=ThreadExecutor(1),
        )


def at_each_line(act: Callable[[str, int], None]):
    """Call `act` with each line of the export's code that is reached from here on, and the number of times it was."""
    times: Counter[str] = Counter()

    def trace(frame, event, _):
        if not frame.f_code.co_filename.startswith(CODE):
            return None
        if event == "line":
            line = f"{Path(frame.f_code.co_filename).stem}-{frame.f_lineno}"
            times[line] += 1
            act(line, times[line])
        return trace

    threading.settrace(trace)
    sys.settrace(trace)


def places_to_die_at(tier: Path, folder: Path, kind: str) -> list[tuple[str, int]]:
    """Lines with a number of times, in the order in which they are first reached."""
    written = folder / "lines"

    def work():
        reached: dict[str, int] = {}
        at_each_line(reached.__setitem__)
        export(tier, folder / "whole", kind)
        written.write_text(json.dumps(reached))

    assert in_fork(work) == 0
    reached = json.loads(written.read_text())
    return [(line, time) for line, last in reached.items() for time in sorted({1, min(2, last), last})]


def main(tier: Path, folder: Path, kind: str, first: int, stride: int):
    with open_tier(tier) as reader:
        assert scan(reader).to_table().num_rows  # loads the kernels once for all forks
    visible: dict[str, dict[str, int]] = {}

    def killed(place: tuple[str, int], target: Path):
        def act(*reached):
            if reached == place:
                os.kill(os.getpid(), signal.SIGKILL)

        at_each_line(act)
        export(tier, target, kind)

    for place in places_to_die_at(tier, folder, kind)[first::stride]:
        target = folder / "{}-{}".format(*place)
        code = in_fork(lambda place=place, target=target: killed(place, target))
        # Threads take turns differently each time: the last time of a line may not be reached.
        assert code in (0, -signal.SIGKILL), code
        visible[target.name] = parquet_files(target)
        assert in_fork(lambda target=target: export(tier, target, kind)) == 0
    print(json.dumps(visible))


main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
