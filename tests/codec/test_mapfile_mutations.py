"""MapFiles with random damage: refused, or read exactly right. Thousands of mutations, many more at night.

Known limits, of the format and not of the reader: without compression nothing guards payloads, and a record that is
lost leaves a gap, which is allowed; with values compressed one by one nothing guards a key but the order of keys, nor
tells that a value is another record's. The file of checksums notices all of it.
"""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from entries import WrittenObject, mutations
from mapfiles import golden_mapfiles, mapfile, read_mapfile

from offload_core.format.codec.mapfile.crc_files import make_checksums, verify_whole
from offload_core.format.codec.mapfile.sequence_file import FileCompression
from offload_hooks.errors import ChecksumError, FormatError

STRETCH_BYTES = 700


class Guarded(enum.Enum):
    """What of a file cannot change without a word, but for the file of checksums."""

    ALL = "all"
    PAYLOADS = "payloads"
    ORDER = "order"


def targets():
    """Files, and what of them is guarded."""
    random = Random(17)
    payloads = [random.randbytes(random.choice([0, 1, 4, 40, 90])) for _ in range(40)]
    gaps = {3 * i + i % 2: payload for i, payload in enumerate(payloads)}
    guards = {FileCompression.NONE: Guarded.ORDER, FileCompression.RECORD: Guarded.PAYLOADS}
    found = [
        (
            mapfile(entries, compression=compression, block_bytes=300, index_interval=4),
            guards.get(compression, Guarded.ALL),
        )
        for entries in (dict(enumerate(payloads)), gaps)
        for compression in FileCompression
    ]
    small = golden_mapfiles()["small-2001"]
    written = WrittenObject(
        key=small.key, data=small.data, index=small.index, entries=tuple(read_mapfile(small))
    )
    return [*found, (written, Guarded.PAYLOADS)]


def some_bytes(data, random):
    size = random.randint(1, 24)
    kind = random.randrange(3)
    if kind == 0:
        return random.randbytes(size)
    if kind == 1:
        return bytes([random.choice([0, 1, 8, 0x7F, 0x80, 0xFF])]) * size
    start = random.randrange(len(data))
    return data[start : start + size]


KINDS = mutations(some_bytes)


def judge(written, damaged, guarded, window_bytes):
    before: list[tuple[int, int, bytes]] = []
    key, outcome = "", "refused"
    try:
        read_mapfile(damaged, stretch_bytes=STRETCH_BYTES, window_bytes=window_bytes, into=before)
        outcome = "harmless"
    except FormatError as error:
        key = error.key or ""
    assert (key == damaged.key.data_key) == (outcome == "refused")
    whole = list(written.entries)
    if outcome == "harmless" and guarded is not Guarded.ORDER:
        assert len(before) == len(whole), "an entry was lost without a word"
    if guarded is Guarded.ALL:
        assert before == whole[: len(before)]
    if guarded is Guarded.PAYLOADS:
        assert {payload for *_, payload in before} <= {payload for *_, payload in whole}
    ids = [entry_id for _, entry_id, _ in before]
    assert ids == sorted(set(ids))
    assert set(ids) <= set(range(whole[-1][1] + 1))
    return outcome


def run(rounds, seed):
    random = Random(seed)
    outcomes: Counter[str] = Counter()
    for written, guarded in targets():
        checksums = make_checksums(written.data)
        for _ in range(rounds):
            name = random.choice(["data", "data", "data", "index"])
            data = getattr(written, name)
            damaged = random.choice(KINDS)(data, random.randrange(len(data)), random)
            if damaged == data:
                continue
            window_bytes = random.choice([None, 200, 1000])
            outcomes[judge(written, replace(written, **{name: damaged}), guarded, window_bytes)] += 1
            if name == "data":
                with pytest.raises((ChecksumError, FormatError)):
                    verify_whole(damaged, checksums)
    return outcomes


def test_mutations_are_refused_or_harmless():
    outcomes = run(200, seed=5)
    assert outcomes["refused"] > 4 * outcomes["harmless"] > 0


@pytest.mark.nightly
def test_very_many_mutations_are_refused_or_harmless():
    outcomes = run(10_000, seed=6)
    assert outcomes.total() > 50_000
