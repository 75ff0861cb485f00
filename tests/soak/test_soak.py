"""The soak: a topic whose owner works, meets faults and is killed, over and over: nothing acknowledged is ever lost,
and what is said of its transactions is what its entries say.

`OFFLOAD_SOAK_S` is how long it takes, `OFFLOAD_SOAK_SEED` repeats the dice of a run (threads do as they like).
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter

import pytest
import soak_owner
from scenes.segments import left_in
from scenes.transactions import Model

from offload_core.format.messages.entry import TransactionId
from offload_core.metadata.records import EntryPosition, ReadPriority
from offload_core.reading.transaction_buffers import BufferState, SnapshotStore
from offload_core.writing.managed_ledger import TransactionalTopic, open_managed_ledger, settle_transactions

SOAK_S = 5.0
NIGHTLY_S = 20 * 60.0

Added = dict[EntryPosition, tuple[int, int, TransactionId]]
"""Acknowledged entries: producer, sequence number and transaction, or `NONE`."""

NONE = TransactionId(0, 0)

Ended = dict[TransactionId, bool]
"""Transactions whose end was acknowledged: whether they were committed."""


@pytest.mark.long
def test_no_acknowledged_entry_is_lost_duplicated_or_reordered(tmp_path):
    soak(tmp_path, float(os.environ.get("OFFLOAD_SOAK_S", SOAK_S)), has_done_some, 500)


@pytest.mark.nightly
@pytest.mark.timeout(NIGHTLY_S * 2)
def test_nor_in_twenty_minutes(tmp_path):
    soak(tmp_path, NIGHTLY_S, has_done_all, 2000)


def soak(folder, duration_s, is_enough, most_lines):
    """Let owners follow one another; look at what there is in between, and at the end."""
    seed = os.environ.get("OFFLOAD_SOAK_SEED") or str(random.randrange(1 << 32))
    print(f"OFFLOAD_SOAK_SEED={seed}")
    dice, added, ended, seen = random.Random(seed), Added(), Ended(), Counter[str]()
    deadline = time.monotonic() + duration_s
    while time.monotonic() < deadline or not is_enough(seen):
        run_owner(folder, seed, seen["owners"], dice.randrange(1, most_lines), added, ended)
        seen["owners"] += 1
        if dice.random() < 0.5:
            look(folder, added, ended, dice, seen)
    look(folder, added, ended, dice, seen)
    offload_all(folder)
    print(f"{dict(seen)}; {len(added)} entries are left")


def has_done_some(seen):
    return seen["owners"] > 1 and seen["looks"]


def has_done_all(seen):
    """Whether there was each thing that a soak is about; a slow machine takes longer for it."""
    return seen["owners"] > 2 and all(
        seen[what]
        for what in (
            *("looks", "offloaded", "segments", "cold only", "trimmed"),
            *("committed", "aborted", "open", "filtered"),
        )
    )


def run_owner(folder, seed, generation, lines, added, ended):
    """Run an owner until it has told of so many calls, and kill it; what it was told of is `added`."""
    command = [sys.executable, soak_owner.__file__, str(folder), seed, str(generation)]
    errors = folder / "errors.txt"
    with (
        errors.open("wb") as file,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, text=True) as process,
    ):
        assert process.stdout is not None
        told = []
        try:
            for line in process.stdout:
                told.append(line)
                if len(told) == lines or not line.startswith(("added ", "ended ")):
                    break
        finally:
            process.kill()
        told += process.stdout
    for line in told:
        if not line.endswith("\n"):
            break  # it was killed while it told
        if line.startswith("ended "):
            most, least, commits = map(int, line.split()[1:])
            ended[TransactionId(most, least)] = bool(commits)
            continue
        assert line.startswith("added "), line
        producer, sequence, count, ledger_id, entry_id, most, least = map(int, line.split()[1:])
        for i in range(count):
            position = EntryPosition(ledger_id, entry_id + i)
            assert position not in added
            added[position] = producer, sequence + i, TransactionId(most, least)
    assert len(told) >= lines, errors.read_text()


def look(folder, added, ended, dice, seen):
    """Open the topic without faults, and compare it with what was acknowledged; forget what was trimmed."""
    priority = dice.choice([ReadPriority.BOOKKEEPER_FIRST, ReadPriority.OFFLOADED_FIRST])
    with (
        soak_owner.environment_in(folder, priority) as (environment, _),
        open_managed_ledger(environment, soak_owner.NAME, rollover=soak_owner.ROLLOVER) as topic,
    ):
        topic.trim(soak_owner.RETENTION)  # ends deletions that were begun
        known = environment.records.read(topic.name)
        ledgers = {ledger.ledger_id: ledger for ledger in known.info.ledgers}
        found = {}
        last = {}
        position, model = EntryPosition(0, 0), Model()
        while len(read := topic.read_entries(position, 1000)):
            for at, payload in read:
                model.add(at, bytes(payload))
                parsed = soak_owner.parse_entry(payload)
                if parsed is not None:
                    found[at] = parsed
                    soak_owner.check_order(last, *parsed)
            position = read.next_position
        check_transactions(environment, topic, model, ended, dice, seen)
    check_trimmed(folder, {position.ledger_id for position in added}, set(ledgers), seen)
    for position in [each for each in added if each.ledger_id not in ledgers]:
        del added[position]
    for position, (producer, sequence, transaction) in added.items():
        if position in found or transaction not in model.aborted:
            assert found.get(position) == (producer, sequence), position
        else:
            assert has_cold_copy(ledgers[position.ledger_id], position), position
            seen["filtered"] += 1
    assert [*found] == sorted(found)
    for ledger in ledgers.values():
        seen["offloaded"] += ledger.has_complete_copy
        seen["segments"] += ledger.has_complete_copy and bool(ledger.context and ledger.context.segments)
        seen["cold only"] += ledger.context is not None and ledger.context.bookkeeper_deleted
    seen["looks"] += 1


def has_cold_copy(ledger, position):
    """Whether an entry is offloaded, so that a filter may have dropped it."""
    return position.entry_id < (ledger.offloaded_stop or 0)


def check_transactions(environment, topic, model, ended, dice, seen):
    """What is said of transactions, by an owner and by others, is what the entries that are left say."""
    if dice.random() < 0.5:
        settle_transactions(environment, topic.name)
    status = TransactionalTopic(environment, topic).status()
    if status.state is not BufferState.READY:
        assert not any(model.transactions)
        return
    first = min((at for at, _ in model.entries), default=EntryPosition(0, 0))
    stable = status.stable_position
    if model.stable is None and stable is not None:
        assert stable < first  # it was persisted before all that is left was
    else:
        assert stable == model.stable
    assert set(status.open_transactions) == set(model.first)
    snapshot = SnapshotStore(environment.records.store).read(topic.name)
    assert snapshot is not None
    model.check_snapshot(snapshot, since=first)
    there = set(model.transactions) - {None}
    for transaction in there & set(ended):
        assert transaction not in model.first
        assert (transaction in model.aborted) != ended[transaction]
        seen["committed" if ended[transaction] else "aborted"] += 1
    seen["open"] += bool(model.first)


def offload_all(folder):
    """Without faults all is offloaded in the end, and the tier has nothing else."""
    with (
        soak_owner.environment_in(folder, ReadPriority.OFFLOADED_FIRST) as (environment, _),
        open_managed_ledger(environment, soak_owner.NAME) as topic,
    ):
        topic.roll()
        topic.complete_segment(60)
        topic.offload_prefix(EntryPosition(1 << 40, 0))
        info = topic.read_info()
        assert all(ledger.offloaded_stop == ledger.info.entries for ledger in info.ledgers)
        assert left_in(folder / "cold", info) == set()


def check_trimmed(folder, known, left, seen):
    """Ledgers that are gone are the oldest, and the audit log says why."""
    gone = known - left
    if not gone:
        return
    assert not left or max(gone) < min(left)
    lines = [json.loads(line) for line in (folder / "audit.jsonl").read_text().splitlines()]
    trimmed = {
        line["ledger_id"] for line in lines if "retention keeps" in line["why"] or "begun" in line["why"]
    }
    assert gone <= trimmed
    seen["trimmed"] += len(gone)
