"""MapFiles read, against Pulsar's read handle in a warm JVM: the same files, which its filesystem offloader wrote.

The files lie in memory where the machine has a file system there; both verify their `.crc` files. Pulsar reads batches
of 100 entries, ours is a scan at level `entries`. Both processes are kept on one core, and take turns.
"""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

from oracle import Oracle

from benchmarks.java import reading_against_java
from benchmarks.material import DISTINCT, LEDGER_ID, json_record
from benchmarks.measure import Result, one_core
from benchmarks.stores import in_memory_where_it_can_be
from pulsar_offload import open_tier, scan

LEDGER_BYTES = 32 << 20
SIZES = (100, 1024)
COMPRESSIONS = ("BLOCK", "RECORD", "NONE")
TARGET = 2.0


def run(folder: Path) -> Iterator[Result]:
    """Each way of compression: as Pulsar's documentation has it, as Hadoop has it by default, none."""
    place = in_memory_where_it_can_be(folder)
    try:
        with one_core(), Oracle(place) as oracle:  # the JVM stays on that core as well
            for compression, size in itertools.product(COMPRESSIONS, SIZES):
                yield reading(oracle, place / f"{compression}-{size}", compression, size)
    finally:
        shutil.rmtree(place)


def reading(oracle: Oracle, root: Path, compression: str, size: int) -> Result:
    """A ledger of 32 MiB of JSON records."""
    count, attempt = LEDGER_BYTES // size, UUID(int=LEDGER_ID)
    distinct = [json_record(i, size, random.Random(i)) for i in range(DISTINCT)]
    payloads = list(itertools.islice(itertools.cycle(distinct), count))
    oracle.offload_files(root, attempt, LEDGER_ID, payloads, io_seqfile_compression_type=compression)
    name = f"MapFile, {compression}, entries of {size:,} B, all columns"
    with open_tier(root) as tier:
        planned = scan(tier, ledger=LEDGER_ID, level="entries")
        return reading_against_java(
            name, oracle, {"uri": f"file://{root}"}, planned, count, count * size, TARGET
        )
