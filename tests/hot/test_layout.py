"""The bytes of a ledger file: the example of the documentation, and headers, states and footers that are refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from ledger_files import all_entries

from offload_core.storage.hot import FileLedgerStore
from offload_core.storage.hot.ledger_frames import ledger_seed, pack_frames
from offload_core.storage.hot.ledger_layout import (
    FRAMES_OFFSET,
    MAX_POINTS,
    PAGE_BYTES,
    SLOT_OFFSETS,
    STATE_BYTES,
    Footer,
    Header,
    Mark,
    State,
    newest_state,
    pack_footer,
    pack_header,
    pack_state,
    parse_footer,
    parse_header,
    parse_state,
)
from offload_hooks.errors import BadMagicError, FormatError, OptionError, UnsupportedVersionError

EXAMPLE = Path(__file__).parents[1] / "docs" / "ledger-v1.bin"

LEDGER_ID = 7
ENTRIES = [b"first", b"second"]
HEADER = Header(
    ledger_id=LEDGER_ID, created_at_ms=1_795_000_000_000, custom_metadata={"component": b"managed-ledger"}
)
FRAMES = pack_frames(ledger_seed(LEDGER_ID), 0, ENTRIES)
END = Mark(2, FRAMES_OFFSET + len(FRAMES))
STATE = State(sequence=4, epoch=1, sealed=True, acknowledged=END, durable=END, boot=0x0123456789ABCDEF)
FOOTER = Footer(
    ledger_id=LEDGER_ID,
    end=END,
    sealed_at_ms=1_795_000_060_000,
    digest=xxhash.xxh3_128_digest(FRAMES),
    points=np.array([[0, FRAMES_OFFSET]], dtype=np.int64),
)


def example():
    seed = ledger_seed(LEDGER_ID)
    slots = [
        pack_state(state, seed).ljust(PAGE_BYTES, b"\0") for state in (STATE, STATE._replace(sequence=5))
    ]
    return pack_header(HEADER) + b"".join(slots) + FRAMES + pack_footer(FOOTER)


def test_the_example_is_what_is_written():
    assert example() == EXAMPLE.read_bytes()


def test_the_example_is_read(tmp_path):
    shutil.copy(EXAMPLE, tmp_path / "7.ledger")
    store = FileLedgerStore(tmp_path)
    assert all_entries(store.open(LEDGER_ID)) == ENTRIES
    status = store.verify(LEDGER_ID)
    assert (status.entry_count, status.size_bytes, status.sealed) == (2, 11, True)
    assert (status.created_at_ms, status.custom_metadata) == (HEADER.created_at_ms, HEADER.custom_metadata)
    store.close()


def test_a_store_writes_the_same_bytes_but_for_times(tmp_path):
    store = FileLedgerStore(tmp_path)
    for _ in range(7):
        store.create({}).close()
    writer = store.create(HEADER.custom_metadata)
    writer.append_batch(ENTRIES)
    writer.close()
    store.close()
    found = (tmp_path / "7.ledger").read_bytes()
    header = parse_header(found[:PAGE_BYTES], LEDGER_ID)
    state = newest_state(found[:FRAMES_OFFSET], ledger_seed(LEDGER_ID))
    assert (state.sealed, state.epoch, state.acknowledged, state.durable) == (True, 1, END, END)
    footer = parse_footer(found[END.offset :], END.offset, state)
    assert (footer.end, footer.digest, footer.points.tolist()) == (END, FOOTER.digest, FOOTER.points.tolist())
    assert found[:PAGE_BYTES] == pack_header(header)
    assert found[FRAMES_OFFSET : END.offset] == FRAMES
    assert found[END.offset :] == pack_footer(footer)


@given(st.dictionaries(st.text(max_size=20), st.binary(max_size=60), max_size=5), st.integers(0, 1 << 62))
def test_headers_are_read_as_they_were_written(custom_metadata, ledger_id):
    header = Header(ledger_id=ledger_id, created_at_ms=5, custom_metadata=custom_metadata)
    assert parse_header(pack_header(header), ledger_id) == header


def test_metadata_has_a_page_less_its_head():
    pack_header(Header(ledger_id=0, created_at_ms=0, custom_metadata={"k": bytes(4096 - 32 - 7)}))
    with pytest.raises(OptionError):
        pack_header(Header(ledger_id=0, created_at_ms=0, custom_metadata={"k": bytes(4096 - 32 - 6)}))


def test_a_newer_version_is_refused_as_such():
    page = pack_header(HEADER)
    with pytest.raises(UnsupportedVersionError, match=r"expected 1, found 2\. Upgrade"):
        parse_header(page[:7] + b"\2" + page[8:], LEDGER_ID)


marks = st.builds(Mark, st.integers(0, 1 << 40), st.integers(0, 1 << 50))
states = st.builds(
    State,
    st.integers(0, 1 << 60),
    st.integers(1, 1 << 30),
    st.booleans(),
    marks,
    marks,
    st.integers(0, (1 << 64) - 1),
)


@given(states, st.data())
def test_a_state_is_read_as_it_was_written_or_not_at_all(state, data):
    slot = pack_state(state, 99)
    assert len(slot) == STATE_BYTES
    assert parse_state(slot, 99) == state
    assert parse_state(slot, 98) is None
    assert parse_state(slot[: data.draw(st.integers(0, STATE_BYTES - 1))], 99) is None
    bit = data.draw(st.integers(0, 8 * STATE_BYTES - 1))
    assert (
        parse_state(slot[: bit // 8] + bytes([slot[bit // 8] ^ 1 << bit % 8]) + slot[bit // 8 + 1 :], 99)
        is None
    )


@pytest.mark.parametrize("newer", [0, 1])
def test_the_newer_slot_that_is_whole_counts(newer):
    seed = ledger_seed(LEDGER_ID)
    pages = bytearray(FRAMES_OFFSET)
    for i, offset in enumerate(SLOT_OFFSETS):
        pages[offset : offset + STATE_BYTES] = pack_state(STATE._replace(sequence=8 + (i == newer)), seed)
    assert newest_state(bytes(pages), seed).sequence == 9
    pages[SLOT_OFFSETS[newer] + 20] ^= 4
    assert newest_state(bytes(pages), seed).sequence == 8
    pages[SLOT_OFFSETS[1 - newer] + 20] ^= 4
    with pytest.raises(FormatError, match="both slots"):
        newest_state(bytes(pages), seed)


def test_a_footer_is_refused_where_it_is_not_what_the_state_says():
    data = pack_footer(FOOTER)
    for state in (STATE._replace(acknowledged=Mark(3, END.offset)), STATE._replace(acknowledged=Mark(2, 5))):
        with pytest.raises(FormatError, match="not what its state says"):
            parse_footer(data, END.offset, state)
    with pytest.raises(BadMagicError):
        parse_footer(bytes(len(data)), END.offset, STATE)


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(page, footer):
    with pytest.raises(FormatError):
        parse_header(page.ljust(PAGE_BYTES, b"\0"), LEDGER_ID)
    with pytest.raises(FormatError):
        parse_footer(pack_footer(FOOTER)[:4] + footer, END.offset, STATE)


def test_an_index_is_not_longer_than_it_may_be():
    long = pack_footer(FOOTER)[:-24] + (MAX_POINTS + 1).to_bytes(8, "big") + bytes(16)
    with pytest.raises(FormatError):
        parse_footer(long, END.offset, STATE)
