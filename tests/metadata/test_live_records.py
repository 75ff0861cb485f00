"""A running Pulsar's records in ZooKeeper are replaced at the version that was read; nothing else is written."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest
from records import closed, copied, managed_ledger, still_open
from tiers import uuid_of

from offload_core.format.messages.compression import Compression
from offload_core.metadata.records.stored_record import StoredRecord, pack_stored_record, parse_stored_record
from offload_core.metadata.stores.live_records import LiveRecordStore, live_records, open_live_store
from offload_hooks.errors import (
    AccessDeniedError,
    OptionError,
    OutcomeUnknownError,
    UnknownTopicError,
    VersionConflictError,
)

NAME = "acme/cold/persistent/orders"
PATH = f"/managed-ledgers/{NAME}"
INFO = managed_ledger(closed(3, 2), still_open(4))
CHANGED = managed_ledger(closed(3, 2, copied(uuid_of(3))), still_open(4))


@pytest.fixture
def store(proxy, root):
    with closing(open_live_store(f"{proxy.endpoint}{root}", {})) as store:
        yield store


@pytest.fixture
def node(client, root):
    """The record's node, as a broker has written it."""
    client.create(f"{root}{PATH}", pack_stored_record(StoredRecord(info=INFO)), makepath=True)
    return f"{root}{PATH}"


def change(_):
    return CHANGED


def test_a_record_is_replaced_by_one_write_beside_pulsars_own_nodes(store, client, root, node):
    client.create(f"{root}/ledgers/available", makepath=True)
    client.create(f"{root}/admin/policies", b"{}", makepath=True)
    before = sorted(tree(client, root))
    assert live_records(store).update(NAME, change).info == CHANGED
    data, stat = client.get(node)
    assert parse_stored_record(data).info == CHANGED
    assert stat.version == 1
    assert sorted(tree(client, root)) == before


def tree(client, path):
    yield path
    for child in client.get_children(path):
        yield from tree(client, f"{path}/{child}")


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4, Compression.ZSTD])
def test_a_record_keeps_its_compression(store, client, node, compression):
    client.set(node, pack_stored_record(StoredRecord(info=INFO, compression=compression)))
    live_records(store).update(NAME, change)
    assert parse_stored_record(client.get(node)[0]) == StoredRecord(info=CHANGED, compression=compression)


def test_a_record_that_needs_no_change_is_not_written(store, client, node):
    live_records(store).update(NAME, lambda info: info)
    assert client.get(node)[1].version == 0


def test_a_broker_that_is_faster_is_not_written_over(store, client, node):
    """The change is made anew to what the broker wrote."""
    theirs = replace(INFO, properties=(("theirs", "1"),))
    seen = []

    def change_after_the_broker(info):
        if not seen:
            client.set(node, pack_stored_record(StoredRecord(info=theirs)))
        seen.append(info)
        return replace(info, properties=(*info.properties, ("ours", "1")))

    written = live_records(store).update(NAME, change_after_the_broker)
    assert seen == [INFO, theirs]
    assert written.info.properties == (("theirs", "1"), ("ours", "1"))
    assert parse_stored_record(client.get(node)[0]).info == written.info


def test_a_record_of_a_topic_that_was_deleted_and_made_again_is_not_written_over(store, client, node):
    """The node has the same version again, but is another one."""
    value, version = store.get(PATH)
    client.delete(node)
    client.create(node, value)
    with pytest.raises(VersionConflictError):
        store.replace(PATH, b"ours", version)
    assert client.get(node)[0] == value


@pytest.mark.parametrize(
    "losses", [["request"], ["answer"], ["answer", "request"], ["request", "answer", "request"]]
)
def test_a_change_is_made_once_though_requests_and_answers_are_lost(store, proxy, client, node, losses):
    live_records(store).read(NAME)
    proxy.lose = iter(losses)
    written = live_records(store).update(NAME, change)
    data, stat = client.get(node)
    assert parse_stored_record(data).info == CHANGED == written.info
    assert stat.version == 1
    assert stat.mzxid == written.version


def test_an_outcome_that_stays_unknown_is_an_error(store, proxy, node):
    live_records(store).read(NAME)
    proxy.lose = iter(["request"] * 20)
    with pytest.raises(OutcomeUnknownError, match="orders"):
        live_records(store).update(NAME, change)


def test_nothing_is_created_or_deleted_and_only_records_are_written(store, client, root, node):
    writable = LiveRecordStore(store)
    version = writable.get(PATH)[1]
    client.create(f"{root}/admin/policies/acme/cold", b"{}", makepath=True)
    policies = writable.get("/admin/policies/acme/cold")[1]
    with pytest.raises(AccessDeniedError, match="only records that exist"):
        writable.put("/admin/policies/acme/cold", b"x", policies)
    with pytest.raises(AccessDeniedError):
        writable.put(f"{PATH}-2", b"x", None)
    for path in ("/managed-ledgers/acme/cold", f"{PATH}/cursor", "/managed-ledgers/acme/cold/persistent"):
        with pytest.raises(AccessDeniedError):
            writable.put(path, b"x", version)
    with pytest.raises(AccessDeniedError):
        writable.delete(PATH, version)
    with pytest.raises(VersionConflictError):
        writable.put(f"{PATH}-2", b"x", version)
    with pytest.raises(UnknownTopicError):
        live_records(store).update(f"{NAME}-2", change)
    assert client.exists(f"{root}{PATH}-2") is None
    assert client.get(node)[1].version == 0


def test_a_record_that_zookeeper_does_not_take_is_refused_before_it_is_sent(store, client, node):
    version = store.get(PATH)[1]
    with pytest.raises(OptionError, match="too large"):
        store.replace(PATH, b"x" * 1_000_001, version)
    assert client.get(node)[1].version == 0


def test_only_a_zookeeper_has_records_that_can_be_changed(tmp_path):
    for url, options in (("http://127.0.0.1:1", {}), (f"sqlite:{tmp_path}/metadata.db", {"create": True})):
        with pytest.raises(OptionError, match="changed in its ZooKeeper"):
            open_live_store(url, options)
