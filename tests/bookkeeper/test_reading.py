"""Reading ledgers of real bookies: digests, ensembles that change, bookies that stop, lie, refuse or are old."""

from __future__ import annotations

import random
import struct
import time

import pytest
from network.bookie_proxy import unchanged

from offload_core.format.codec.bookkeeper.ledger_nodes import ledger_node
from offload_core.format.codec.ledger_metadata import parse_ledger_metadata
from offload_hooks.errors import (
    AccessDeniedError,
    ChecksumError,
    DataLossError,
    FormatError,
    OffloadError,
    StoreTimeoutError,
    StoreUnavailableError,
    UnknownLedgerError,
)
from offload_hooks.testing.ledger_cases.base import all_of

READ, BATCH_READ = 2, 7


pytestmark = pytest.mark.sampled(6)


def entries(count, largest=2000, seed=0):
    drawn = random.Random(seed)
    return [drawn.randbytes(drawn.randrange(largest)) for _ in range(count)]


def operation(frame):
    return frame[5]


ENSEMBLES = {"batches": {"ensemble": 2, "write_quorum": 2}, "striped": {"ensemble": 3, "write_quorum": 2}}


@pytest.mark.parametrize("ensemble", ENSEMBLES.values(), ids=ENSEMBLES)
@pytest.mark.parametrize("digest", ["CRC32C", "CRC32", "MAC", "DUMMY"])
def test_every_digest_is_read(bookkeeper, store, digest, ensemble):
    written = entries(200)
    ledger_id = bookkeeper.make_ledger(written, digest=digest, password="geheim", **ensemble)
    assert all_of(store.open(ledger_id), 10_000) == written
    assert store.verify(ledger_id).size_bytes == sum(map(len, written))


def test_large_entries_are_read(bookkeeper, store):
    written = [
        random.Random(i).randbytes(size) for i, size in enumerate([5_000_000, 1, 3_000_000, 4_999_999])
    ]
    for ensemble in ENSEMBLES.values():
        ledger_id = bookkeeper.make_ledger(written, **ensemble)
        assert all_of(store.open(ledger_id)) == written


def test_small_entries_after_large_ones_are_read(bookkeeper, store):
    """The mean size says nothing of what comes next."""
    written = [bytes(300_000)] * 5 + [b"x"] * 5000 + [bytes(100_000)] * 5
    for ensemble in ENSEMBLES.values():
        ledger_id = bookkeeper.make_ledger(written, **ensemble)
        assert all_of(store.open(ledger_id)) == written


@pytest.mark.parametrize("ensemble", ENSEMBLES.values(), ids=ENSEMBLES)
def test_an_ensemble_that_changes_while_written_is_read(bookkeeper, store, ensemble):
    written = entries(300)
    ledger_id = bookkeeper.create(**ensemble | {"ensemble": 2}, ack_quorum=2)
    bookkeeper.append(ledger_id, written[:100])
    members = describe(bookkeeper, ledger_id).ensembles[0].members
    stopped = next(bookie for bookie in bookkeeper.bookies if bookie.bookie_id in members)
    stopped.stop()
    try:
        bookkeeper.append(ledger_id, written[100:])
        bookkeeper.close_ledger(ledger_id)
        assert all_of(store.open(ledger_id), 10_000) == written
    finally:
        stopped.restart()
    assert len(describe(bookkeeper, ledger_id).ensembles) >= 2
    assert all_of(store.open(ledger_id), 10_000) == written


def describe(bookkeeper, ledger_id, root=None):
    with bookkeeper.zookeeper.connected() as client:
        value = client.get(f"{root or bookkeeper.root}{ledger_node(ledger_id)}")[0]
    begin = value.index(b"\n") + 1
    begin += 2 if value[begin] & 0x80 else 1
    return parse_ledger_metadata(value[begin:])


@pytest.mark.parametrize("ensemble", ENSEMBLES.values(), ids=ENSEMBLES)
def test_a_bookie_that_stops_is_passed_over(bookkeeper, store, ensemble):
    written = entries(300)
    ledger_id = bookkeeper.make_ledger(written, **ensemble)
    reader = store.open(ledger_id)
    assert bytes(reader.read(0, 0)[0]) == written[0]
    members = describe(bookkeeper, ledger_id).ensembles[0].members
    stopped = next(bookie for bookie in bookkeeper.bookies if bookie.bookie_id == members[0])
    stopped.kill()
    try:
        assert all_of(reader, 10_000) == written
    finally:
        stopped.restart()
    assert all_of(reader, 10_000) == written


def test_without_any_bookie_the_ledger_is_out_of_reach(bookkeeper, open_store):
    ledger_id = bookkeeper.make_ledger(entries(10), ensemble=1, write_quorum=1, ack_quorum=1)
    (member,) = describe(bookkeeper, ledger_id).ensembles[0].members
    stopped = next(bookie for bookie in bookkeeper.bookies if bookie.bookie_id == member)
    stopped.stop()
    try:
        with pytest.raises(StoreUnavailableError, match="no bookie of a ledger answers") as caught:
            open_store(timeout_s=5, attempts=1).open(ledger_id).read(3, 5)
    finally:
        stopped.restart()
    assert (caught.value.ledger_id, caught.value.entry_id) == (ledger_id, 3)
    assert member in str(caught.value)


@pytest.mark.parametrize("ensemble", ENSEMBLES.values(), ids=ENSEMBLES)
def test_entries_that_moved_to_other_bookies_are_found(bookkeeper, open_store, ensemble):
    """The description of a closed ledger changes as well: here its first one names bookies that have nothing."""
    written = entries(100)
    ledger_id = bookkeeper.make_ledger(written, **ensemble)
    with bookkeeper.behind_proxies(unchanged, unchanged) as (root, _):
        node = f"{root}{ledger_node(ledger_id)}"
        with bookkeeper.zookeeper.connected() as client:
            right = client.get(node)[0]
            members = describe(bookkeeper, ledger_id).ensembles[0].members
            wrong = right
            for member in members:
                wrong = wrong.replace(member.encode(), member[:-1].encode() + b"?")
            client.set(node, wrong)
            reader = open_store(ledgers_path=root, attempts=1).open(ledger_id)
            client.set(node, right)
        assert all_of(reader, 10_000) == written


def test_a_deleted_ledger_is_unknown_once_its_bookies_have_nothing(bookkeeper, open_store, store):
    ledger_id = bookkeeper.make_ledger(entries(10))
    bookkeeper.delete_ledger(ledger_id)
    with pytest.raises(UnknownLedgerError):
        store.open(ledger_id)


def test_entries_that_no_bookie_has_are_lost(bookkeeper, open_store):
    ledger_id = bookkeeper.make_ledger(entries(10))

    def nothing(frame):
        return frame if operation(frame) not in (READ, BATCH_READ) else with_code(frame, 2)

    with (
        bookkeeper.behind_proxies(unchanged, nothing) as (root, _),
        pytest.raises(DataLossError, match="NO_ENTRY") as caught,
    ):
        open_store(ledgers_path=root).open(ledger_id).read(4, 6)
    assert (caught.value.ledger_id, caught.value.entry_id) == (ledger_id, 4)


def with_code(frame, code):
    """An answer without entries."""
    size = 36 if operation(frame) == BATCH_READ else 28
    return struct.pack(">i", size - 4) + frame[4:8] + struct.pack(">i", code) + frame[12:size]


@pytest.mark.parametrize("ensemble", ENSEMBLES.values(), ids=ENSEMBLES)
def test_damaged_entries_are_read_from_another_bookie(bookkeeper, open_store, ensemble):
    written = entries(100, largest=500)
    ledger_id = bookkeeper.make_ledger(written, **ensemble)
    damaged = set()

    def damage_once(frame):
        """Change the last byte of the first answer with an entry."""
        entry_id = int.from_bytes(frame[20:28], "big")
        if entry_id in damaged or len(frame) < 100:
            return frame
        damaged.add(entry_id)
        return damage(frame)

    with bookkeeper.behind_proxies(unchanged, damage_once) as (root, _):
        store = open_store(ledgers_path=root)
        assert all_of(store.open(ledger_id), 2_000) == written
    assert damaged


def damage(frame):
    return frame[:-1] + bytes([frame[-1] ^ 1])


@pytest.mark.parametrize("digest", ["CRC32C", "CRC32", "MAC"])
@pytest.mark.parametrize("ensemble", ENSEMBLES.values(), ids=ENSEMBLES)
def test_nothing_is_taken_from_a_bookie_whose_entries_are_all_damaged(
    bookkeeper, open_store, ensemble, digest
):
    written = [b"%d" % i * 50 for i in range(60)]
    ledger_id = bookkeeper.make_ledger(written, digest=digest, **ensemble)
    (first, *_) = describe(bookkeeper, ledger_id).ensembles[0].members
    with bookkeeper.behind_proxies(unchanged, unchanged) as (root, proxies):
        of_bookie(bookkeeper, proxies, first).on_answer = damage
        assert all_of(open_store(ledgers_path=root).open(ledger_id), 2_000) == written


def of_bookie(bookkeeper, proxies, bookie_id):
    """The proxy before a bookie."""
    return proxies[[bookie.bookie_id for bookie in bookkeeper.bookies].index(bookie_id)]


@pytest.mark.parametrize("ensemble", ENSEMBLES.values(), ids=ENSEMBLES)
def test_a_bookie_that_hangs_leaves_time_for_the_others(bookkeeper, open_store, ensemble):
    written = [b"%d" % i * 50 for i in range(60)]
    ledger_id = bookkeeper.make_ledger(written, **ensemble)
    (first, *_) = describe(bookkeeper, ledger_id).ensembles[0].members
    with bookkeeper.behind_proxies(unchanged, unchanged) as (root, proxies):
        of_bookie(bookkeeper, proxies, first).on_answer = lambda frame: time.sleep(30) or frame
        reader = open_store(ledgers_path=root, timeout_s=4, attempts=1).open(ledger_id)
        assert bytes(reader.read(0, 59)[0]) == written[0]


def test_damage_beside_a_refusal_is_tried_again(bookkeeper, open_store):
    ledger_id = bookkeeper.make_ledger([b"x" * 300] * 20)
    first, second = describe(bookkeeper, ledger_id).ensembles[0].members
    refusals = iter([True])
    with bookkeeper.behind_proxies(unchanged, unchanged) as (root, proxies):
        of_bookie(bookkeeper, proxies, first).on_answer = damage
        of_bookie(bookkeeper, proxies, second).on_answer = lambda frame: (
            with_code(frame, 106) if next(refusals, False) else frame
        )
        assert bytes(open_store(ledgers_path=root).open(ledger_id).read(7, 7)[0]) == b"x" * 300


@pytest.mark.parametrize("ensemble", ENSEMBLES.values(), ids=ENSEMBLES)
def test_an_entry_that_is_damaged_everywhere_is_named(bookkeeper, open_store, ensemble):
    ledger_id = bookkeeper.make_ledger([b"x" * 300] * 20, **ensemble)
    with bookkeeper.behind_proxies(unchanged, damage) as (root, _), pytest.raises(ChecksumError) as caught:
        open_store(ledgers_path=root).open(ledger_id).read(7, 7)
    assert (caught.value.ledger_id, caught.value.entry_id) == (ledger_id, 7)


@pytest.mark.parametrize("ensemble", ENSEMBLES.values(), ids=ENSEMBLES)
def test_a_bookie_with_too_many_requests_is_asked_again(bookkeeper, open_store, ensemble):
    written = entries(50)
    ledger_id = bookkeeper.make_ledger(written, **ensemble)
    refused, refusals = 0, 6 if ensemble == ENSEMBLES["batches"] else 150

    def refuse(frame):
        nonlocal refused
        if operation(frame) in (READ, BATCH_READ) and refused < refusals:
            refused += 1
            return with_code(frame, 106)
        return frame

    with bookkeeper.behind_proxies(unchanged, refuse) as (root, _):
        assert all_of(open_store(ledgers_path=root, attempts=9).open(ledger_id), 10_000) == written
    assert refused == refusals


def test_a_bookie_that_wants_a_login_says_so(bookkeeper, open_store):
    ledger_id = bookkeeper.make_ledger(entries(5))
    with (
        bookkeeper.behind_proxies(unchanged, lambda frame: with_code(frame, 102)) as (root, _),
        pytest.raises(AccessDeniedError, match="want a login"),
    ):
        open_store(ledgers_path=root).open(ledger_id).read(0, 4)


def test_a_bookie_that_is_too_old_for_batches_is_read_one_by_one(bookkeeper, open_store):
    written = entries(100)
    ledger_id = bookkeeper.make_ledger(written)

    def old(frame):
        return None if operation(frame) == BATCH_READ else frame

    with bookkeeper.behind_proxies(old, unchanged) as (root, proxies):
        store = open_store(ledgers_path=root)
        assert all_of(store.open(ledger_id), 10_000) == written
        asked = [operation(frame) for proxy in proxies for frame in proxy.requests]
        assert asked.count(BATCH_READ) <= len(proxies)
        assert all_of(store.open(ledger_id), 10_000) == written


def test_a_silent_bookie_is_waited_for_until_the_deadline(bookkeeper, open_store):
    ledger_id = bookkeeper.make_ledger(entries(5))
    begun = time.monotonic()
    with (
        bookkeeper.behind_proxies(unchanged, lambda frame: time.sleep(60) or frame) as (root, _),
        pytest.raises(StoreTimeoutError),
    ):
        open_store(ledgers_path=root, timeout_s=1, attempts=1).open(ledger_id).read(0, 4)
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize(
    "answer", [b"\0\0\0\0", b"\xff\xff\xff\xff", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\4\2\2\0\0"]
)
def test_what_is_no_bookie_is_refused(bookkeeper, open_store, answer):
    ledger_id = bookkeeper.make_ledger(entries(5))
    with (
        bookkeeper.behind_proxies(unchanged, lambda _: answer) as (root, _),
        pytest.raises((FormatError, StoreUnavailableError)) as caught,
    ):
        open_store(ledgers_path=root, timeout_s=2, attempts=1).open(ledger_id).read(0, 4)
    assert isinstance(caught.value, OffloadError)


# --- nothing that is sent changes anything -----------------------------------------------------


@pytest.mark.parametrize("ensemble", ENSEMBLES.values(), ids=ENSEMBLES)
def test_nothing_that_is_sent_can_fence_or_change_a_ledger(bookkeeper, open_store, ensemble):
    """Each frame is a read without flags and without a key; the writer of an open ledger goes on."""
    written = entries(120)
    closed, still_open = bookkeeper.make_ledger(written, **ensemble), bookkeeper.create(**ensemble)
    bookkeeper.append(still_open, written[:60])
    before = node_version(bookkeeper, still_open)
    with bookkeeper.behind_proxies(unchanged, unchanged) as (root, proxies):
        store = open_store(ledgers_path=root)
        assert all_of(store.open(closed), 10_000) == written
        store.verify(closed)
        reader = store.open(still_open)
        confirmed = reader.status().entry_count
        assert all_of(reader, 10_000) == written[:confirmed]
        frames = [frame for proxy in proxies for frame in proxy.requests]
    assert frames
    for frame in frames:
        version, asked, flags = frame[4], frame[5], int.from_bytes(frame[6:8], "big")
        assert (version, flags) == (2, 0)
        assert (asked, len(frame)) in ((READ, 24), (BATCH_READ, 44))
    bookkeeper.append(still_open, written[60:])
    assert node_version(bookkeeper, still_open) == before
    bookkeeper.close_ledger(still_open)
    assert all_of(open_store().open(still_open), 10_000) == written


def node_version(bookkeeper, ledger_id):
    with bookkeeper.zookeeper.connected() as client:
        return client.exists(f"{bookkeeper.root}{ledger_node(ledger_id)}").version


def test_nothing_that_writes_is_offered(store):
    for name in ("create", "append", "delete", "recover"):
        assert not hasattr(store, name)
