"""A broker with transactions: an offloaded topic is read as Pulsar's own client reads it, one that is open included."""

from __future__ import annotations

import pytest
from live.sent import ended, steps

from offload_core.reading.scan import read_task
from pulsar_offload import scan

ENDS = {"commit": "committed", "abort": "aborted"}
COLUMNS = ("__ledgerId", "__entryId", "__batchIndex", "value")


@pytest.mark.nightly  # another two brokers, which take transactions
@pytest.mark.parametrize("is_over", [False, True], ids=["open", "all ended"])
def test_a_topic_is_read_as_pulsars_client_reads_it(transactional, is_over):
    admin = transactional.admin
    bucket, store = transactional.new_store()
    namespace = transactional.new_namespace(transactional.broker.s3_policies(bucket))
    topic = f"persistent://{namespace}/topic"
    planned = ended(list(steps())) if is_over else list(steps())
    ids = transactional.send_steps(topic, planned)
    ledgers = admin.offload_all(topic)
    assert len(ledgers) > 2
    read = transactional.read(topic)
    expected = [(row["ledger"], row["entry"], row["batch_index"], row["value"]) for row in read]
    assert 10 < len(expected) < sum(len(step.get("messages", ())) for step in planned)

    with store.open_reader() as tier:
        reading = scan(tier, topic, columns=COLUMNS, task_bytes=1)
        of_tasks = [
            batch for task in reading.tasks for batch in read_task(reading.tier, task, reading.options)
        ]
        for batches in (reading, of_tasks):
            rows = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
            assert [(*row[:3], row[3].decode()) for row in rows] == expected
        columns = ["__txnIdMost", "__txnIdLeast", "__txnState", "value"]
        everything = scan(tier, topic, columns=columns, isolation="uncommitted").to_table()
    sent = [each["value"] for step in planned for each in step.get("messages", ())]
    assert sorted(row["value"].decode() for row in everything.to_pylist()) == sorted(sent)
    fates = dict.fromkeys(ids, "open")
    for step in planned:
        fates |= {step[end]: state for end, state in ENDS.items() if end in step}
    found = {
        (row["__txnIdMost"], row["__txnIdLeast"]): row["__txnState"]
        for row in everything.to_pylist()
        if row["__txnState"] is not None
    }
    assert found == {tuple(ids[name]): fate for name, fate in fates.items()}
    assert ("open" in found.values()) != is_over
