"""Any ranges of a ledger, of any format, give what a plain dictionary of its entries gives."""

from hypothesis import given
from hypothesis import strategies as st
from scenes.copies import by_id, gapped_copy, mapfile_copy, pip17_copy, streaming_copy

from offload_core.format.codec.block_layout import PADDING, pack_frames
from offload_core.format.codec.mapfile.sequence_file import FileCompression

PAYLOADS = st.lists(
    st.one_of(
        st.integers(0, 400).map(bytes),
        st.binary(max_size=30),
        st.sampled_from([PADDING * 9, pack_frames([b"not an entry"] * 3, 2), pack_frames([b""], 0)]),
    ),
    min_size=1,
    max_size=30,
)
WINDOWS = st.sampled_from([1, 13, 128, 140, 300, 1000, 1 << 20])


@st.composite
def copies(draw):
    """A copy of a few entries: of any format, cut anywhere, with or without gaps and directory."""
    payloads = draw(PAYLOADS)
    some = {i: payload for i, payload in enumerate(payloads) if draw(st.booleans())} or {0: payloads[0]}
    stride = draw(st.sampled_from([None, 1, 100, 1000]))
    block_bytes = draw(st.integers(140, 900))
    make = draw(
        st.sampled_from(
            [
                lambda: pip17_copy(payloads, max_block_bytes=block_bytes, stride=stride),
                lambda: gapped_copy(some, len(payloads), max_block_bytes=block_bytes, stride=stride),
                lambda: streaming_copy(
                    payloads, draw(st.lists(st.integers(1, len(payloads)), max_size=3, unique=True))
                ),
                lambda: mapfile_copy(payloads, draw(st.sampled_from(FileCompression))),
                lambda: mapfile_copy(some, draw(st.sampled_from(FileCompression))),
            ]
        )
    )
    return make()


def check_read(reader, copy, first, last, max_bytes, sparse):
    """One read is right; where the next one goes on."""
    if sparse:
        read = reader.read_sparse(first, last, max_bytes)
        stop = read.stop_entry_id
        found = {entry_id: payload for batch in read.runs() for entry_id, payload in by_id(batch).items()}
        assert sorted(found) == read.entry_ids.tolist()
    else:
        batch = reader.read(first, last, max_bytes)
        stop, found = batch.stop_entry_id, by_id(batch)
    assert found == {i: payload for i, payload in copy.entries.items() if first <= i < stop}
    assert first < stop <= last + 1
    size = sum(map(len, found.values()))
    assert size <= max_bytes or len(found) == 1
    if not sparse and stop <= last and stop in copy.entries:
        assert size + len(copy.entries[stop]) > max_bytes
    return stop


@given(copy=copies(), window=WINDOWS, data=st.data())
def test_random_reads_give_the_entries_of_the_range_and_tell_what_they_covered(copy, window, data):
    reader = copy.open(read_buffer_bytes=window)
    count = reader.status().entry_count
    for _ in range(data.draw(st.integers(1, 8))):
        first = data.draw(st.integers(0, count - 1))
        last = data.draw(st.integers(first, count - 1))
        check_read(reader, copy, first, last, data.draw(st.integers(1, 900)), data.draw(st.booleans()))


@given(copy=copies(), window=WINDOWS, max_bytes=st.integers(1, 900), sparse=st.booleans())
def test_reading_on_and_on_gives_every_entry_once_and_ends(copy, window, max_bytes, sparse):
    reader = copy.open(read_buffer_bytes=window)
    count, begin, reads = reader.status().entry_count, 0, 0
    while begin < count:
        begin = check_read(reader, copy, begin, count - 1, max_bytes, sparse)
        reads += 1
    assert reads <= 2 * count
