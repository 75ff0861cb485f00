"""What is read of transactions: Pulsar's own topic, transactions that stay open, ledgers alone."""

import pytest
from golden import COLUMNS, assert_topic_is_as_expected, sent_in_transactions
from scenes.transactions import ONE, OTHER, PLAIN, abort, commit, ledger, of
from tiers import TOPIC, MemoryDriver, Names, in_memory, lay_out_broker_objects, numbered, put

from offload_core.metadata.catalogue import TopicName
from offload_core.reading.scan import Position, read_task
from offload_core.storage.tier import Tier
from offload_hooks.errors import OptionError, UnresolvedTransactionError
from pulsar_offload import TierReader, open_tier, scan

TXN = "acme/cold/txn"


def places(reading):
    """Of a scan's tasks, and the same of the scan itself."""
    found = rows_of_tasks(reading)
    assert [row for batch in reading for row in rows(batch)] == found
    return found


def rows_of_tasks(reading):
    return [
        row
        for task in reading.tasks
        for batch in read_task(reading.tier, task, reading.options)
        for row in rows(batch)
    ]


def rows(batch):
    return [(row["__ledgerId"], row["__entryId"]) for row in batch.to_pylist()]


def seen(tier, **options):
    return places(scan(tier, columns=["__ledgerId", "__entryId"], **options))


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    root = tmp_path_factory.mktemp("golden")
    lay_out_broker_objects(root, ["txn"])
    with open_tier(root) as tier:
        yield tier


# --- Pulsar's topic ----------------------------------------------------------------------------


@pytest.mark.parametrize("task_bytes", [1, 1 << 30])
def test_committed_is_what_pulsars_client_read(golden, task_bytes):
    reading = scan(golden, TXN, columns=COLUMNS, task_bytes=task_bytes)
    assert_topic_is_as_expected(reading.to_table().to_pylist(), "txn")
    batches = [batch for task in reading.tasks for batch in read_task(reading.tier, task, reading.options)]
    assert_topic_is_as_expected([row for batch in batches for row in batch.to_pylist()], "txn")


def test_uncommitted_is_all_that_was_sent_with_what_became_of_it(golden):
    columns = [*COLUMNS, "__txnIdMost", "__txnIdLeast", "__txnState"]
    table = scan(golden, TXN, columns=columns, isolation="uncommitted").to_table()
    found = {(row["__ledgerId"], row["__entryId"], row["__batchIndex"]): row for row in table.to_pylist()}
    sent = {(row["ledger"], row["entry"], row["batch_index"]): row for row in sent_in_transactions()}
    assert found.keys() == sent.keys()
    assert {row["__txnState"] for row in found.values()} == {None, "committed", "aborted"}
    for place, row in found.items():
        if sent[place]["txn_id"] is not None:
            assert [row["__txnIdMost"], row["__txnIdLeast"]] == sent[place]["txn_id"]
            assert row["__txnState"] == sent[place]["state"]


def test_of_a_ledger_alone_it_is_said_what_cannot_be_known(golden, caplog):
    """Two transactions have their markers in the next ledger."""
    found = seen(golden, ledger=49, isolation="committed")
    assert found[-1] < (49, 986)
    assert set(caplog.messages) == {
        "persistent://acme/cold/txn: the outcome of 2 transactions is not known from this ledger alone, their markers "
        "may lie in later ones: (0,60) at 49:986, (0,61) at 49:996. Nothing from 49:986 on is read, as by a consumer; "
        "isolation uncommitted reads all"
    }
    whole = seen(golden, topics=TXN)
    assert found == [place for place in whole if place < (49, 986)]
    assert [place for place in whole if place[0] == 49] > found


def test_markers_behind_the_end_of_a_range_count(golden, caplog):
    whole = seen(golden, topics=TXN)
    stop = {TopicName(f"persistent://{TXN}"): Position(51, 3)}
    assert seen(golden, topics=TXN, stop=stop) == [place for place in whole if place < (51, 3)]
    assert caplog.messages == []


def test_at_level_entries_everything_is_there(golden):
    reading = scan(golden, TXN, level="entries")
    assert reading.to_table().num_rows == 1939


# --- transactions that stay open ---------------------------------------------------------------


def test_nothing_is_read_from_the_first_open_transaction_on(caplog):
    tier = in_memory(
        ledger(1, PLAIN, of(ONE), PLAIN), ledger(2, of(OTHER, 2), commit(ONE), PLAIN), ledger(3, PLAIN)
    )
    assert seen(tier, topics=TOPIC) == [(1, 0), (1, 1), (1, 2)]
    assert set(caplog.messages) == {
        f"{TOPIC}: the outcome of 1 transactions is not known: (0,2) at 2:0. Nothing from 2:0 on is read, as by a "
        "consumer; isolation uncommitted reads all"
    }
    assert len(seen(tier, topics=TOPIC, isolation="uncommitted")) == 7
    states = scan(tier, TOPIC, isolation="uncommitted", columns=["__txnState"]).to_table()["__txnState"]
    assert states.to_pylist() == [None, "committed", None, "open", "open", None, None]


def test_of_many_open_transactions_the_first_are_named(caplog):
    tier = in_memory(ledger(1, PLAIN, *(of((7, i)) for i in range(25, 0, -1))))
    assert seen(tier, topics=TOPIC) == [(1, 0)]
    assert "the outcome of 25 transactions is not known: (7,25) at 1:1, (7,24) at 1:2, " in caplog.text
    assert "(7,16) at 1:10 and 15 more. Nothing from 1:1 on is read" in caplog.text


def test_what_comes_behind_an_open_transaction_is_not_fetched():
    objects = [ledger(1, *[PLAIN] * 30, of(ONE), *[PLAIN] * 30), ledger(2, *[PLAIN] * 50)]
    driver = MemoryDriver(numbered(*objects), metadata=Names().as_metadata("data"))
    reading = scan(TierReader(Tier(driver)), TOPIC)
    (task,) = reading.tasks
    assert [(run.ledger_id, run.stop_entry_id) for run in task.extents] == [(1, 30)]
    assert task.data_bytes < len(objects[0].data)


def test_a_transaction_before_the_range_is_not_the_ranges(caplog):
    tier = in_memory(ledger(1, of(OTHER), of(ONE), PLAIN, abort(ONE), of(ONE), PLAIN))
    found = seen(tier, topics=TOPIC, start={TopicName(TOPIC): Position(1, 2)})
    assert found == [(1, 2), (1, 5)]  # what comes to an aborted transaction later is aborted as well
    assert caplog.messages == []


def test_a_range_that_ends_within_a_batch_ends_there():
    tier = in_memory(ledger(1, of(ONE, 3), of(OTHER, 3), commit(ONE), commit(OTHER)))
    stop = {TopicName(TOPIC): Position(1, 1, 2)}
    reading = scan(tier, TOPIC, columns=["__entryId", "__batchIndex"], stop=stop)
    assert [tuple(row.values()) for row in reading.to_table().to_pylist()] == [
        (0, 0),
        (0, 1),
        (0, 2),
        (1, 0),
        (1, 1),
    ]


def test_later_ledgers_are_looked_through_only_while_a_transaction_is_open():
    objects = [
        ledger(1, PLAIN, of(ONE)),
        *(ledger(i, PLAIN) for i in range(2, 9)),
        ledger(9, commit(ONE)),
        *(ledger(i, PLAIN) for i in range(10, 40)),
    ]
    driver = MemoryDriver(numbered(*objects), metadata=Names().as_metadata("data"))
    reading = scan(TierReader(Tier(driver)), TOPIC, stop={TopicName(TOPIC): Position(2, 0)})
    assert len(reading.tasks) == 1
    driver.reads.clear()
    assert rows_of_tasks(reading) == [(1, 0), (1, 1)]
    read = [key.rpartition("-")[2] for key, _, _ in driver.reads if not key.endswith("-index")]
    assert read == [str(i) for i in range(1, 10)]


def test_each_topic_has_its_own_open_transactions(tmp_path):
    with open_tier(tmp_path) as tier:
        for number, events in enumerate(([PLAIN, of(ONE), PLAIN], [PLAIN, PLAIN], [of(ONE), commit(ONE)])):
            names = Names(managed_ledger=f"acme/cold/persistent/t{number}")
            for key, data in numbered(*[ledger(0, PLAIN)] * number, ledger(10 + number, *events)).items():
                if f"-ledger-{10 + number}" in key:
                    put(tier.store, key, data, names.as_metadata("data"))
        expected = [(10, 0), (11, 0), (11, 1), (12, 0)]
        for task_bytes in (1, 1 << 30):
            assert seen(tier, task_bytes=task_bytes) == expected


# --- options -----------------------------------------------------------------------------------


def test_an_isolation_that_there_is_not_is_refused():
    tier = in_memory(ledger(1, PLAIN))
    with pytest.raises(OptionError, match="committed, uncommitted, found read_committed"):
        scan(tier, TOPIC, isolation="read_committed")


def test_a_task_whose_transaction_was_not_found_open_does_not_guess():
    reading = scan(in_memory(ledger(1, PLAIN, of(ONE))), TOPIC)
    with pytest.raises(UnresolvedTransactionError, match=r"does not end near its entries.*\(0,1\) at 1:1"):
        list(read_task(reading.tier, reading.planned[0], reading.options))


def test_an_end_behind_many_small_ledgers_is_found_by_a_larger_search():
    between = [ledger(number, PLAIN) for number in range(2, 40)]
    tier = in_memory(ledger(1, PLAIN, of(ONE)), *between, ledger(40, commit(ONE)))
    with pytest.raises(
        UnresolvedTransactionError, match=r"A larger transaction_search_bytes .* search farther"
    ):
        rows_of_tasks(scan(tier, TOPIC, task_bytes=1))
    expected = [(1, 0), (1, 1), *((number, 0) for number in range(2, 40))]
    assert seen(tier, task_bytes=1, transaction_search_bytes=512 << 20) == expected
