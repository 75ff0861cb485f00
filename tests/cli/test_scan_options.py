"""Options that `offload cat` and `offload export` share: which messages of which topics are read, and how."""

import re

import pytest
from entries import entry, pip17_object
from golden import BROKER, sent_in_transactions, topic_objects, topic_rows
from scenes.exports import parquet_rows, parquet_table, scanned
from scenes.messages import SentMessage, interleaved, sealed_entry, write_keys
from tiers import Names, lay_out, put_object

from offload_core.interfaces.engines.spark.source_options import KNOWN
from offload_core.storage.tier import open_store

AVRO = BROKER / "topics" / "avro" / "schemas.json"
OF_SPARK_ONLY = {
    *("minPartitions", "maxPartitionBytes", "catalogueCache"),
    *("maxBytesPerTrigger", "maxOffsetsPerTrigger", "refreshIntervalMs"),
}
OF_CAT_ONLY = {"ledger", "level"}
OTHERWISE = {
    "path": "URL",
    "layers": "--layer",
    "storage_options": "--option",
    "topics": "--topic",
    "tiers": "--also-tier",
}


@pytest.mark.parametrize("command", ["cat", "export"])
def test_the_options_of_spark_are_there_in_kebab_case(command, offload, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    shown = offload(command, "--help").out
    left_out = OF_SPARK_ONLY if command == "cat" else OF_SPARK_ONLY | OF_CAT_ONLY
    for name in sorted(KNOWN.keys() - left_out):
        option = OTHERWISE.get(name, "--" + re.sub("([A-Z])", r"-\1", name).lower())
        assert re.search(rf"(?<![\w-]){option}(?![\w-])", shown, re.IGNORECASE), option


def test_an_export_reads_transactions_as_asked_for(offload, broker, tmp_path):
    arguments = ("export", broker, "--topic", "acme/cold/txn")
    done = offload(*arguments, "--to", tmp_path / "committed")
    assert done.code == 0, done.err
    assert len(parquet_rows(tmp_path / "committed")) == len(topic_rows("txn"))
    assert offload(*arguments, "--to", tmp_path / "all", "--isolation", "uncommitted").code == 0
    assert len(parquet_rows(tmp_path / "all")) == len(sent_in_transactions())


def lay_out_object(tier, golden):
    with open_store(tier) as store:
        put_object(store, golden, names=Names(managed_ledger="acme/cold/persistent/txn"))


def test_an_export_ends_before_an_open_transaction_says_so_and_goes_on_there(offload, tmp_path, caplog):
    tier, out = tmp_path / "tier", tmp_path / "out"
    first, second = topic_objects("txn")
    lay_out_object(tier, first)
    arguments = ("export", tier, "--topic", "acme/cold/txn", "--to", out, "--file-bytes", "100000")
    done = offload(*arguments)
    assert done.code == 0, done.err
    ledger_id = first.key.ledger_id
    found = re.search(rf"Nothing from {ledger_id}:(\d+) on is read", caplog.text)
    assert found is not None, caplog.text
    rows = scanned(tier)
    assert parquet_rows(out) == rows
    assert 0 < len(rows) < len(topic_rows("txn"))
    assert max(row["__entryId"] for row in rows) < int(found[1])
    lay_out_object(tier, second)
    caplog.clear()
    assert offload(*arguments).err.count("\n") == 1  # the report
    assert caplog.messages == []
    assert parquet_rows(out) == scanned(tier)
    assert len(parquet_rows(out)) == len(topic_rows("txn"))


def test_an_export_has_typed_columns(offload, broker, tmp_path):
    out = tmp_path / "out"
    done = offload(
        *("export", broker, "--topic", "acme/cold/avro", "--to", out, "--schemas", AVRO),
        *("--columns", "id,__entryId"),
    )
    assert done.code == 0, done.err
    assert parquet_table(out)["id"].to_pylist() == [row["value"]["id"] for row in topic_rows("avro")]


@pytest.fixture
def sealed(tmp_path):
    """A tier with a message that is encrypted for `orders`, and one that is not."""
    lay_out(tmp_path / "tier", pip17_object([sealed_entry(b"secret"), entry(b"plain")]))
    return tmp_path / "tier"


def test_an_export_decrypts_with_a_key_provider(offload, sealed, tmp_path):
    keys = write_keys(tmp_path / "keys", "orders")
    arguments = ("export", sealed, "--topic", "acme/cold/orders", "--to", tmp_path / "out")
    assert offload(*arguments, "--key-provider", f"pem:directory={keys}").code == 0
    assert [row["value"] for row in parquet_rows(tmp_path / "out")] == [b"secret", b"plain"]


def test_an_export_without_a_key_does_as_it_is_told(offload, sealed, tmp_path):
    arguments = ("export", sealed, "--topic", "acme/cold/orders", "--crypto-failure-action")
    failed = offload(*arguments, "fail", "--to", tmp_path / "failed")
    assert failed.code == 1
    assert "encrypted" in failed.err
    assert offload(*arguments, "discard", "--to", tmp_path / "out").code == 0
    assert [row["value"] for row in parquet_rows(tmp_path / "out")] == [b"plain"]


def test_an_export_has_chunks_joined_or_raw(offload, tmp_path):
    messages = [SentMessage(producer="a", number=n, value=b"%d" % n * 3000, chunks=3) for n in range(4)]
    entries = [stored.payload for stored in interleaved(messages, [])]
    for ledger_id in (3, 4):  # the second message begins in one and ends in the other
        part = entries[:5] if ledger_id == 3 else entries[5:]
        lay_out(tmp_path / "tier", pip17_object(part, ledger_id=ledger_id), attempt=ledger_id)
    arguments = ("export", tmp_path / "tier", "--topic", "acme/cold/orders", "--file-bytes", "1")
    for chunks in ("joined", "raw"):
        done = offload(*arguments, "--to", tmp_path / chunks, "--chunks", chunks)
        assert done.code == 0, done.err
    values = [row["value"] for row in parquet_rows(tmp_path / "joined")]
    assert values == [message.value for message in messages]
    assert len(parquet_rows(tmp_path / "raw")) == 12


def test_cat_takes_a_pattern(offload, broker):
    done = offload("cat", broker, "--topics-pattern", ".*/jstring", "--format", "jsonl")
    assert len(done.out.splitlines()) == len(topic_rows("jstring"))


STATES = ("--topic", "acme/cold/txn", "--format", "jsonl", "--columns", "__txnState")


def test_the_isolation_says_which_messages_are_shown(offload, broker):
    committed = offload("cat", broker, *STATES)
    assert (committed.code, committed.err) == (0, "")
    assert len(committed.out.splitlines()) == len(topic_rows("txn"))
    assert "aborted" not in committed.out
    everything = offload("cat", broker, *STATES, "--isolation", "uncommitted")
    assert len(everything.out.splitlines()) == len(sent_in_transactions())
    assert everything.out.count('"aborted"') == 1177


def test_an_isolation_that_there_is_not_is_refused(offload, broker):
    assert offload("cat", broker, *STATES, "--isolation", "serializable").code == 2
