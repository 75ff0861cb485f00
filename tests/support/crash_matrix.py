"""A crash matrix: something is done once for each call of its stores, and for each way in which that call goes wrong.

After each fault, what must hold wherever a process ends is checked; then the same is done to its end. Some of the
points are taken, others each day; with `--nightly` many more (`effort`).
"""

import itertools
import os
from contextlib import suppress

import pytest
from crash_points import FAULTS, Killed, Points

from offload_hooks.errors import OffloadError


@pytest.fixture
def crash_matrix(tmp_path, sample, monkeypatch, record_property):
    """Run the matrix; the calls that `run` makes are returned.

    Args (of what it gives):
        scene: makes the part of the world that outlives processes, in a folder of its own.
        run: the work of a process, or the rest of it.
        check: refuses a scene in which something is lost.
        check_done: refuses one in which the work is unfinished, or garbage is left.
        every: take each `every`-th point only.
    """
    # No power fails here, and the disk would take half of the time; what it keeps is tested with the driver.
    monkeypatch.setattr(os, "fsync", lambda _: None)

    def go_through(scene, run, *, check, check_done, every):
        whole, counted = scene(tmp_path / "calls"), Points()
        run(whole, counted)
        check_done(whole, "without a fault")
        points = sample(list(itertools.product(range(1, len(counted.calls) + 1), FAULTS)), every)
        record_property("crash points", len(points))
        for at, fault in points:
            where = f"{fault} call {at}, {counted.calls[at - 1]}"
            faulty = scene(tmp_path / f"{at}-{fault}")
            with suppress(OffloadError, Killed):
                run(faulty, Points(at=at, fault=fault))
            check(faulty, where)
            run(faulty, Points())
            check(faulty, where)
            check_done(faulty, where)
        print(f"{len(counted.calls)} calls, {len(points)} points")
        return counted.calls

    return go_through
