"""`offload ls` of objects with many blocks each, by one process and by two: decoding indexes takes longer than reading.

The objects lie on a local disk, so that nobody waits for a store.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from entries import pip17_object
from tiers import lay_out

from benchmarks.material import message_entries
from benchmarks.measure import Result, seconds_side_by_side
from offload_core.format.messages.compression import Compression
from offload_core.metadata.catalogue.survey import LedgerSurvey
from offload_core.storage.executors import Executor, ProcessExecutor
from offload_core.storage.tier import open_store

OBJECTS = 2000
BLOCKS = 1000
ROUNDS = 3


def run(folder: Path) -> Iterator[Result]:
    """The ratio of seconds: of this process, with its threads, to those of two processes, their start among them."""
    root = folder / "lookers"
    entries = message_entries(100, 1, Compression.NONE)[:1] * BLOCKS
    for number in range(OBJECTS):
        lay_out(root, pip17_object(entries, ledger_id=number, max_block_bytes=384), attempt=number)
    ours, peer, ratio = seconds_side_by_side(
        partial(_list, root, ProcessExecutor(2)), partial(_list, root, None), rounds=ROUNDS
    )
    shutil.rmtree(root)
    yield Result(
        name=f"ls of {OBJECTS:,} objects of {BLOCKS:,} blocks, two processes against one with threads",
        ours=f"{OBJECTS / ours:,.0f} objects/s",
        peer=f"{OBJECTS / peer:,.0f} objects/s",
        ratio=ratio,
        limit=None,
    )


def _list(root: Path, executor: Executor | None) -> None:
    with open_store(root) as tier, LedgerSurvey() as survey:
        counts: list[int] = []
        survey.fill(tier, executor=executor, listener=counts.append)
        if counts[-1] != OBJECTS:
            raise AssertionError("not all objects are looked at")
