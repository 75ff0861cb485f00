"""Objects with random damage: refused, or read exactly right. Thousands of mutations, many more at night.

What a damaged payload holds is not the codec's to know: of random payloads only the other entries are
compared, and Pulsar entries go through the decoder of messages, whose checksum must notice.

Known limits, of the formats and not of the reader. A length that grows by a multiple of 4 into the padding
leaves padding that is right, so the last entry of a block can be too long; and an entry of a streaming
object's last block of a ledger can so swallow those behind it, since the index does not say with which entry
that block ends (the offload context does: whoever has one compares). Where the index says it, a swallowed
entry is noticed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from entries import (
    LedgerPart,
    WrittenObject,
    batch_entry,
    chunk_entries,
    encrypted_entry,
    entry,
    marker,
    mutations,
    pip17_object,
    read_object,
    spans_of,
    streaming_object,
)
from golden import load_case
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from offload_core.format.codec.decoder import parse_index
from offload_core.format.messages.message_columns import arrow_schema
from offload_core.format.messages.message_decoder import MessageDecoder
from offload_hooks.errors import FormatError
from offload_proto.messages_pb2 import LZ4, SNAPPY, ZLIB, ZSTD

Entry = tuple[int, int, bytes]
MUTATIONS_PER_SEED = 20
FRAME_BYTES = 12
PADDING = b"\xfe\xdc\xde\xad"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An object, the byte offsets where its structure lies, and whether its payloads are Pulsar entries."""

    written: WrittenObject
    structure: tuple[int, ...]
    blocks: tuple[tuple[int, int, int, int, bool], ...]
    """Per block (ledger, first entry, one past its last, offset, whether the index says where it ends)."""
    is_pulsar: bool = False


def target(written, *, is_pulsar=False):
    index = parse_index(written.index, written.key)
    last: dict[int, int] = {}
    for ledger_id, entry_id, _ in written.entries:
        last[ledger_id] = entry_id
    blocks, structure = [], []
    sizes = {(ledger, entry_id): len(payload) for ledger, entry_id, payload in written.entries}
    for ledger in index.ledgers:
        for block in ledger.blocks:
            end = block.end_entry_id
            stop = last[ledger.ledger_id] + 1 if end is None else end
            blocks.append((ledger.ledger_id, block.first_entry_id, stop, block.offset, end is not None))
            structure += range(block.offset, block.offset + 40)
            position = block.offset + 128
            for entry_id in range(block.first_entry_id, stop):
                structure += range(position, position + FRAME_BYTES)
                position += FRAME_BYTES + sizes[ledger.ledger_id, entry_id]
    return Target(written=written, structure=tuple(structure), blocks=tuple(blocks), is_pulsar=is_pulsar)


def golden(name):
    case = load_case("pip17", name)
    entries = tuple(read_object(case.data, case.index, case.key))
    return target(WrittenObject(key=case.key, data=case.data, index=case.index, entries=entries))


def pulsar_entries():
    batch = [b"one", b"", b"three" * 9]
    return [
        entry(b"hello", properties=[("key", "value")], partition_key="a"),
        batch_entry(batch),
        *(batch_entry(batch, compression=codec) for codec in (LZ4, ZLIB, ZSTD, SNAPPY)),
        marker(21),
        encrypted_entry(b"secret"),
        *chunk_entries(b"in two chunks", 7),
        entry(b"", event_time=1),
    ]


def targets():
    random = Random(17)
    payloads = [random.randbytes(random.choice([0, 1, 4, 40, 90])) for _ in range(24)]
    parts = [
        LedgerPart(ledger_id=8, blocks=[payloads[:9], payloads[9:13]], first_entry_id=3),
        LedgerPart(ledger_id=9, blocks=[payloads[13:]]),
    ]
    messages = pulsar_entries()
    message_parts = [LedgerPart(ledger_id=5, blocks=[messages[:5], messages[5:]])]
    return [
        golden("single-entry"),
        golden("zero-length-only"),
        golden("one-block"),
        target(pip17_object(payloads, max_block_bytes=400)),
        target(pip17_object(payloads, max_block_bytes=2000)),
        target(streaming_object(parts)),
        target(pip17_object(messages, max_block_bytes=700), is_pulsar=True),
        target(streaming_object(message_parts), is_pulsar=True),
    ]


# --- mutations ---------------------------------------------------------------------------------


def some_bytes(data, random):
    size = random.randint(1, 24)
    kind = random.randrange(4)
    if kind == 0:
        return random.randbytes(size)
    if kind == 1:
        return (PADDING * 6)[:size]
    if kind == 2:
        return bytes([random.choice([0, 1, 0x7F, 0x80, 0xFF])]) * size
    start = random.randrange(len(data))
    return data[start : start + size]


KINDS = mutations(some_bytes)


def place(length, structure, random):
    return random.choice(structure) if structure and random.random() < 0.6 else random.randrange(length)


# --- judgement ---------------------------------------------------------------------------------


def same_or_damaged_payload(of, found, mutated_at):
    """True if the entries read from damaged data are all the same, False if payloads differ."""
    by_place = {(ledger, entry_id): payload for ledger, entry_id, payload in found}
    assert len(by_place) == len(found)
    right = {(ledger, entry_id): payload for ledger, entry_id, payload in of.written.entries}
    assert by_place.keys() <= right.keys()
    for ledger_id, first, stop, offset, says_end in of.blocks:
        got = [by_place[ledger_id, i] for i in range(first, stop) if (ledger_id, i) in by_place]
        expected = [right[ledger_id, i] for i in range(first, stop)]
        assert len(got) == len(expected) or (got and not says_end), "an entry was lost without a word"
        assert all((ledger_id, first + i) in by_place for i in range(len(got)))
        assert [len(payload) for payload in got[:-1]] == [len(p) for p in expected[: len(got) - 1]]
        if len(got) == len(expected):  # the known limits: into the padding, and what looks like padding
            lost = expected[-1][len(got[-1]) :]
            assert (len(got[-1]) - len(expected[-1])) % 4 == 0 or lost
            assert lost == (PADDING * len(lost))[: len(lost)]
        position = offset + 128
        for i, payload in enumerate(expected[: len(got)]):
            if position + FRAME_BYTES + len(payload) <= mutated_at:
                assert got[i] == payload, "an entry before the damage differs"
            position += FRAME_BYTES + len(payload)
    return found == list(of.written.entries)


def messages_of(entries):
    """The rows of each run of entries of a ledger."""
    rows = []
    ledgers = sorted({ledger for ledger, _, _ in entries})
    for ledger_id in ledgers:
        own = [(entry_id, payload) for ledger, entry_id, payload in entries if ledger == ledger_id]
        decoder = MessageDecoder(
            topic=None,
            partition=-1,
            ledger_id=ledger_id,
            schema=SCHEMA,
            verify_checksums=True,
            max_message_bytes=1 << 20,
        )
        block, offsets, lengths = spans_of([payload for _, payload in own])
        batches = list(decoder.decode(block, 0, np.array([each for each, _ in own]), offsets, lengths))
        rows.append(pa.Table.from_batches(batches, schema=SCHEMA).to_pylist())
    return rows


SCHEMA = arrow_schema("messages")


def mutate_and_judge(seed, all_targets, outcomes):
    random = Random(seed)
    for _ in range(MUTATIONS_PER_SEED):
        of = random.choice(all_targets)
        written = of.written
        data, index = written.data, written.index
        in_index = random.random() < 0.3
        outcomes["mutations"] += 1
        if in_index:
            at = place(len(index), (), random)
            index = random.choice(KINDS)(index, at, random)
        else:
            at = place(len(data), of.structure, random)
            data = random.choice(KINDS)(data, at, random)
        try:
            found = read_object(data, index, written.key)
        except FormatError:
            outcomes["refused by the codec"] += 1
            continue
        if in_index:
            assert found == list(written.entries)
            outcomes["right"] += 1
        elif same_or_damaged_payload(of, found, at):
            outcomes["right"] += 1
        elif of.is_pulsar:
            with pytest.raises(FormatError):
                messages_of(found)
            outcomes["refused by the decoder of messages"] += 1
        else:
            outcomes["another payload"] += 1


def run(seeds):
    outcomes: Counter[str] = Counter()
    all_targets = targets()

    @settings(max_examples=seeds, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.integers(0, 2**64 - 1))
    def judge(seed):
        mutate_and_judge(seed, all_targets, outcomes)

    judge()
    return outcomes


@pytest.mark.long
def test_thousands_of_mutations_are_refused_or_harmless():
    outcomes = run(200)
    assert outcomes["mutations"] >= 2_000
    assert outcomes["refused by the codec"] > outcomes["mutations"] // 2
    assert outcomes["refused by the decoder of messages"] > 0
    assert outcomes["right"] > 0


@pytest.mark.nightly
def test_very_many_mutations_are_refused_or_harmless():
    outcomes = run(10_000)
    assert outcomes["mutations"] >= 200_000


def test_the_messages_of_the_targets_are_read():
    of = next(of for of in targets() if of.is_pulsar)
    (rows,) = messages_of(list(of.written.entries))
    assert len(rows) == 1 + 5 * 3 + 1 + 2 + 1
    assert np.all([row["__ledgerId"] == 7 for row in rows])
