"""A process of the soak: it owns the topic, and is killed at some moment.

`python soak_owner.py FOLDER SEED GENERATION` adds entries by several threads, some of them in transactions that are
committed, aborted, or left open for a while; it offloads by ledgers and by segments in turn, through a filter or none,
deletes hot copies, trims, and reads from either copy, while metadata and tier fail now and then. It prints a line for
each acknowledged call after it returned, `added PRODUCER SEQUENCE COUNT LEDGER ENTRY MOST LEAST` with the transaction,
or 0 and 0, or `ended MOST LEAST COMMITS` of a transaction; and `wrong …` for what must never be.
"""

from __future__ import annotations

import random
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from zlib import crc32

import stamina
from managed_ledgers import environment_of

from offload_core.format.messages.entry import NewMessage, TransactionId, pack_entry, split_entry
from offload_core.metadata.catalogue.known_tiers import KnownTiers
from offload_core.metadata.policies import RetentionPolicies
from offload_core.metadata.records import EntryPosition, ReadPriority
from offload_core.metadata.records.filter_record import FilterMode
from offload_core.metadata.stores.sqlite import SqliteStore
from offload_core.reading.read_handles import ColdReaders, TieredReaders
from offload_core.storage.clock import system_now_ms
from offload_core.storage.hot import FileLedgerStore
from offload_core.writing.audit import FileAuditLog
from offload_core.writing.managed_ledger import (
    EntriesRead,
    Environment,
    RolloverPolicy,
    SnapshotPolicy,
    StreamingPool,
    StreamingSettings,
    TransactionalTopic,
    open_managed_ledger,
)
from offload_core.writing.offload_filters import NO_FILTER, ChosenFilter
from offload_core.writing.transaction_filter import TransactionOffloadFilter
from offload_hooks.errors import (
    DataLossError,
    LedgerFailedError,
    OffloadError,
    OwnershipLostError,
    UnknownTransactionError,
)
from offload_hooks.testing import FaultyMetadataStore
from offload_hooks.testing.faulty_metadata import MetadataCall, MetadataFault
from pulsar_offload import open_tier

NAME = "acme/cold/persistent/soak"
ROLLOVER = RolloverPolicy(max_entries=100, min_age_s=0)
SNAPSHOTS = SnapshotPolicy(max_entries=200, interval_s=0.2)
RETENTION = RetentionPolicies(retentionTimeInMinutes=-1, retentionSizeInMB=1)
PRODUCERS = 3
CALLS_PER_ROUND = 60
"""Most additions for each round of offload, deletion and trim, so that these keep up."""

GENERATION = 1 << 32
"""A producer's sequence numbers of one process begin here times the process's number: so they always ascend."""

TOMBSTONES = ChosenFilter(name="transactions", mode=FilterMode.TOMBSTONE, filter=TransactionOffloadFilter())
"""Gaps would leave nothing of transactions to check."""

TIER_FAULTS = (
    "fail-before begin_data,write_block,write_index,stat,read_range,delete 3%; "
    "fail-after commit_data,write_index,delete 3%; truncate read_range,read_ranges 2%; duplicate delete 5%"
)


def payload_of(producer: int, sequence: int) -> bytes:
    """A payload with its producer, sequence and checksum, between 16 and 700 bytes."""
    head = producer.to_bytes(4, "big") + sequence.to_bytes(8, "big")
    return head + crc32(head).to_bytes(4, "big") * (1 + crc32(head) % 171)


def parse_payload(payload: bytes | memoryview) -> tuple[int, int]:
    """Producer and sequence number; `ValueError` if it is not what was added."""
    producer, sequence = int.from_bytes(payload[:4], "big"), int.from_bytes(payload[4:12], "big")
    if bytes(payload) != payload_of(producer, sequence):
        raise ValueError(f"not what was added: {bytes(payload[:20])!r}")
    return producer, sequence


def entry_of(producer: int, sequence: int, transaction: TransactionId | None) -> bytes:
    """Pulsar's entry with that payload."""
    return pack_entry(
        [NewMessage(value=payload_of(producer, sequence))],
        producer_name="soak",
        sequence_id=0,
        publish_time_ms=1,
        transaction=transaction,
    )


def parse_entry(entry: bytes | memoryview) -> tuple[int, int] | None:
    """Producer and sequence number; None of a marker, and of a tombstone. `ValueError` as `parse_payload`."""
    parts = split_entry(bytes(entry))
    if parts.metadata.HasField("marker_type"):
        return None
    return parse_payload(parts.payload[4 + int.from_bytes(parts.payload[:4], "big") :])


def segments_of_some_size(dice: random.Random) -> StreamingSettings:
    """From a few entries to a few ledgers, of blocks of some entries."""
    return StreamingSettings(
        max_segment_bytes=dice.choice([1_000, 20_000, 200_000]),
        max_segment_age_s=dice.choice([0.2, 2.0]),
        block_bytes=dice.choice([5_000, 50_000]),
    )


# --- the process -------------------------------------------------------------------------------


@contextmanager
def environment_in(
    folder: Path,
    priority: ReadPriority,
    *,
    faults_by: str | None = None,
    offload_filter: ChosenFilter = NO_FILTER,
) -> Iterator[tuple[Environment, TieredReaders]]:
    """The topic's environment, and readers of either copy; by the seed `faults_by` metadata and tier fail at times."""
    layers = [] if faults_by is None else [("fault-plan", {"faults": TIER_FAULTS, "seed": faults_by})]
    with ExitStack() as stack:
        store = stack.enter_context(closing(SqliteStore(f"sqlite:{folder}/records.db", create=True)))
        hot = stack.enter_context(closing(FileLedgerStore(folder / "hot", sync="interval")))
        cold = stack.enter_context(open_tier(folder / "cold", layers=layers))
        dice = random.Random(faults_by)
        choose = (lambda _: None) if faults_by is None else partial(_fault, dice)
        tiers = KnownTiers(cold.store)
        readers = TieredReaders(hot, ColdReaders(tiers, read_buffer_bytes=30_000))
        streaming = stack.enter_context(StreamingPool(lambda _: nullcontext(tiers), buffer_bytes=100_000))
        environment = environment_of(
            FaultyMetadataStore(store, choose),
            hot,
            tiers,
            block_bytes=20_000,
            now_ms=system_now_ms,
            open_reader=readers.open,
            priority_of=lambda _: priority,
            cache_bytes=50_000,
            filter_of=lambda _: offload_filter,
            streaming=streaming,
            audit=FileAuditLog(folder / "audit.jsonl"),
        )
        yield environment, readers


def _fault(dice: random.Random, call: MetadataCall) -> MetadataFault | None:
    drawn = dice.random()
    if drawn < 0.02:
        return "unavailable"
    if call.method in ("put", "delete") and drawn < 0.05:
        return "unknown-after" if drawn < 0.035 else "unknown-before"
    return None


def check_order(last: dict[int, int], producer: int, sequence: int) -> None:
    """Each producer's entries ascend; `ValueError` if one is there twice, or out of order."""
    if sequence <= last.get(producer, -1):
        raise ValueError(f"{sequence} of producer {producer} comes after {last[producer]}")
    last[producer] = sequence


class Owner:
    """The threads of the process."""

    def __init__(
        self,
        transactional: TransactionalTopic,
        environment: Environment,
        readers: TieredReaders,
        seed: str,
        first_sequence: int,
    ) -> None:
        self._transactional = transactional
        self._topic = transactional.topic
        self._coordinator = transactional.begin().most_bits
        self._environment = environment
        self._readers = readers
        self._seed = seed
        self._first_sequence = first_sequence
        self._acknowledged: dict[EntryPosition, tuple[int, int]] = {}
        self._left: list[TransactionId] = []
        self._lock = threading.Lock()
        self._room = threading.Semaphore(CALLS_PER_ROUND)

    def run(self) -> None:
        """Until the process is killed, or something is wrong."""
        turns: list[Callable[[random.Random], None]] = [
            self._maintain,
            self._read_through,
            self._read_anywhere,
        ]
        turns += [partial(self._produce, producer) for producer in range(PRODUCERS)]
        threads = [threading.Thread(target=self._guarded, args=(turn, i)) for i, turn in enumerate(turns)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _guarded(self, turn: Callable[[random.Random], None], number: int) -> None:
        dice = random.Random(f"{self._seed} {number}")
        try:
            turn(dice)
        except BaseException:
            self._say("wrong " + traceback.format_exc().replace("\n", " | "))

    def _say(self, line: str) -> None:
        with self._lock:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()

    def _produce(self, producer: int, dice: random.Random) -> None:
        sequence = self._first_sequence
        begun: list[TransactionId] = []
        while True:
            self._room.acquire()
            count = dice.choice([1, 1, 1, 5])
            transaction = None
            if dice.random() < 0.4:
                if not begun or (len(begun) < 3 and dice.random() < 0.3):
                    begun.append(self._transactional.begin())
                transaction = dice.choice(begun)
            added = [entry_of(producer, sequence + i, transaction) for i in range(count)]
            try:
                first = self._transactional.add_entries(added)
            except LedgerFailedError:
                sequence += count  # whether it is there is not known
                continue
            except OwnershipLostError:
                raise
            except OffloadError:
                continue  # nothing of it is there: the same again
            for i in range(count):
                position = EntryPosition(first.ledger_id, first.entry_id + i)
                self._acknowledged[position] = producer, sequence + i
            most, least = transaction or (0, 0)
            self._say(
                f"added {producer} {sequence} {count} {first.ledger_id} {first.entry_id} {most} {least}"
            )
            sequence += count
            if begun and dice.random() < 0.15:
                ended = begun.pop(dice.randrange(len(begun)))
                if dice.random() < 0.95:
                    self._end(ended, commits=dice.random() < 0.6)
                else:
                    self._left.append(ended)

    def _end(self, transaction: TransactionId, *, commits: bool) -> None:
        """End a transaction, whatever fails meanwhile."""
        end = self._transactional.commit if commits else self._transactional.abort
        while True:
            try:
                end(transaction)
            except OwnershipLostError:
                raise
            except UnknownTransactionError:
                break  # it had ended, though that was not known
            except OffloadError:
                continue
            break
        self._say(f"ended {transaction.most_bits} {transaction.least_bits} {int(commits)}")

    def _end_left(self) -> None:
        """Abort transactions that were left open, also by processes before; as a coordinator does after a time."""
        status, left = self._transactional.status(), set(self._left)
        for transaction in status.open_transactions:
            if transaction.most_bits != self._coordinator or transaction in left:
                self._transactional.abort(transaction)

    def _maintain(self, dice: random.Random) -> None:
        """Offload up to somewhere, delete hot copies, trim; a fault of a store ends a call, nothing else does.

        Now and then it is switched between ledgers and segments of other sizes, or a segment is completed by hand.
        """
        while True:
            last = self._topic.last_position or EntryPosition(0, 0)
            if dice.random() < 0.3:
                self._topic.set_streaming(segments_of_some_size(dice) if dice.random() < 0.7 else None)
            for call in (
                partial(self._topic.complete_segment, 5.0)
                if dice.random() < 0.1
                else self._topic.roll_if_due,
                partial(
                    self._topic.offload_prefix, EntryPosition(max(0, last.ledger_id - dice.randrange(3)), 0)
                ),
                partial(self._topic.delete_hot_copies, dice.choice([0, 0, 1])),
                partial(self._topic.trim, RETENTION),
                self._transactional.snapshot_if_due,
                self._end_left,
            ):
                try:
                    call()
                except (DataLossError, OwnershipLostError):
                    raise
                except OffloadError:
                    continue
            self._room.release(CALLS_PER_ROUND)

    def _check(self, position: EntryPosition, payload: bytes | memoryview) -> tuple[int, int] | None:
        found = parse_entry(payload)
        if found is not None and self._acknowledged.get(position, found) != found:
            raise ValueError(f"{found} is at {position}, where {self._acknowledged[position]} was added")
        return found

    def _read_through(self, dice: random.Random) -> None:
        """From the first entry to the newest, or to the last that is settled, again and again."""
        while True:
            position, last = EntryPosition(0, 0), dict[int, int]()
            settled = dice.random() < 0.5
            topic = self._transactional if settled else self._topic
            while True:
                try:
                    read = topic.read_entries(position, dice.randrange(1, 400))
                    if settled and len(read):
                        self._check_settled(read)
                except OffloadError:
                    continue
                for at, payload in read:
                    found = self._check(at, payload)
                    if found is not None:
                        check_order(last, *found)
                if not len(read):
                    break
                position = read.next_position

    def _check_settled(self, read: EntriesRead) -> None:
        last = max(at for at, _ in read)
        if self._transactional.decide(last, None) == "undecided":
            raise ValueError(f"{last} is not settled, and was given")

    def _read_anywhere(self, dice: random.Random) -> None:
        """Read some entries of any sealed ledger, by any priority; they may be gone, but not wrong."""
        while True:
            try:
                known = self._environment.records.read(NAME)
                sealed = [] if known is None else [each for each in known.info.ledgers if each.info.entries]
                if not sealed:
                    continue
                record = dice.choice(sealed)
                first = dice.randrange(record.info.entries or 1)
                reader = self._readers.open(record, dice.choice(list(ReadPriority)))
                with closing(reader):
                    batch = reader.read(first, (record.info.entries or 1) - 1)
            except OffloadError:
                continue
            for entry_id, payload in enumerate(batch, batch.first_entry_id):
                self._check(EntryPosition(record.ledger_id, entry_id), payload)


def main() -> None:
    """See the module."""
    stamina.instrumentation.set_on_retry_hooks([])  # with structlog it prints to where we tell
    folder, seed, generation = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    by = f"{seed} {generation}"
    dice = random.Random(by)
    priority = dice.choice([ReadPriority.BOOKKEEPER_FIRST, ReadPriority.OFFLOADED_FIRST])
    offload_filter = TOMBSTONES if dice.random() < 0.5 else NO_FILTER
    with environment_in(folder, priority, faults_by=by, offload_filter=offload_filter) as (
        environment,
        readers,
    ):
        while True:
            try:
                topic = TransactionalTopic(
                    environment, open_managed_ledger(environment, NAME, rollover=ROLLOVER), SNAPSHOTS
                )
                break
            except DataLossError:
                raise
            except OffloadError:
                continue
        Owner(topic, environment, readers, by, generation * GENERATION).run()


if __name__ == "__main__":
    main()
