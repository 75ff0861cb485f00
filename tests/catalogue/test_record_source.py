"""Where records are read from: files, trees, bytes by topic; on this machine or in a store."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from records import MANAGED_LEDGERS, ZOOKEEPER_RECORDS, closed, golden_record, managed_ledger
from tiers import put

from offload_core.metadata.catalogue import TopicName, open_records, require_complete
from offload_core.metadata.records import ManagedLedgerInfo, pack_managed_ledger_info, parse_stored_record
from offload_core.metadata.stores.sqlite import SqliteStore
from offload_core.storage.tier import open_store
from offload_hooks.errors import BadLengthError, MetadataError, ObjectNotFoundError, OptionError
from pulsar_offload import open_tier

INFO = managed_ledger(closed(1, 2))
RECORD = pack_managed_ledger_info(INFO)


def load(source, root=Path("/nowhere")):
    with open_tier(root) as tier:
        return tier.records(source)


def names(source):
    return [name.full for name in load(source)]


def write(path, data=RECORD):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def test_a_tree_is_read_from_any_folder_of_it():
    whole = load(MANAGED_LEDGERS)
    assert len(whole) == 14
    for part in ("acme", "acme/cold", "acme/cold/persistent", "acme/cold/persistent/"):
        assert load(f"{MANAGED_LEDGERS}/{part}") == whole
    assert load(MANAGED_LEDGERS.parent) == whole
    assert load(MANAGED_LEDGERS.as_uri()) == whole


def test_a_file_names_its_topic_by_its_path():
    path = golden_record("json")
    expected = parse_stored_record(path.read_bytes()).info
    assert load(path) == load(str(path)) == {TopicName("persistent://acme/cold/json"): expected}


def test_a_relative_path_is_one_of_the_working_directory(monkeypatch):
    monkeypatch.chdir(golden_record("json").parent)
    assert names("json.val") == ["persistent://acme/cold/json"]
    assert len(names(".")) == 14


def test_a_file_elsewhere_is_given_with_its_topic():
    for path in ZOOKEEPER_RECORDS:
        found = load(f"persistent://a/b/c={path}")
        assert found == {TopicName("persistent://a/b/c"): parse_stored_record(path.read_bytes()).info}


def test_bytes_and_values_by_topic_in_any_form_of_its_name():
    records = {
        "a/b/c": RECORD,
        "persistent://a/b/d": INFO,
        "a/b/persistent/e%2Ff": golden_record("json").read_bytes(),
    }
    found = load(records)
    assert [name.full for name in found] == [f"persistent://a/b/{name}" for name in ("c", "d", "e/f")]
    assert list(found.values())[:2] == [INFO, INFO]


def test_topics_have_their_encoded_names_and_no_suffix(tmp_path):
    for name in ("plain", "with.val", "x%2Fy-partition-3"):
        write(tmp_path / "t" / "n" / "persistent" / name)
    expected = [f"persistent://t/n/{name}" for name in ("plain", "with", "x/y-partition-3")]
    assert sorted(names(tmp_path)) == expected


def test_an_old_topics_cluster_is_part_of_its_name_below_the_root(tmp_path):
    write(tmp_path / "managed-ledgers" / "t" / "east" / "n" / "persistent" / "old")
    assert names(tmp_path) == ["persistent://t/east/n/old"]


def test_other_files_and_cursors_records_are_passed_over(tmp_path):
    write(tmp_path / "t" / "n" / "persistent" / "a.val")
    write(tmp_path / "t" / "n" / "persistent" / "a" / "my-subscription.val", b"not a record")
    write(tmp_path / "README.md", b"not a record")
    write(tmp_path / "t" / "n" / "non-persistent" / "b", b"not a record")
    assert names(tmp_path) == ["persistent://t/n/a"]


def test_a_neighbour_with_a_longer_name_is_not_in_the_tree(tmp_path):
    write(tmp_path / "records" / "t" / "n" / "persistent" / "a")
    write(tmp_path / "records-2" / "t" / "n" / "persistent" / "b")
    assert names(tmp_path / "records") == ["persistent://t/n/a"]


def test_an_empty_file_is_a_managed_ledger_without_ledgers(tmp_path):
    write(tmp_path / "t" / "n" / "persistent" / "a", b"")
    assert load(tmp_path) == {TopicName("persistent://t/n/a"): ManagedLedgerInfo()}


def test_records_may_lie_in_a_tier(tmp_path):
    with open_store(tmp_path) as store:
        put(store, "meta/t/n/persistent/a.val", RECORD, {"role": "record"})
    assert names(f"file://{tmp_path}/meta") == ["persistent://t/n/a"]


# --- refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "match"),
    [
        (ZOOKEEPER_RECORDS[0], r"no record of a managed ledger is there.*persistent://TENANT"),
        (ZOOKEEPER_RECORDS[0].parent, r"no record of a managed ledger is there.*persistent://TENANT"),
        (f"persistent://a/b/c={MANAGED_LEDGERS}", "no record of a managed ledger is there"),
        (f"persistent://a/b/c={MANAGED_LEDGERS}/nothing", "no record of a managed ledger is there"),
        (MANAGED_LEDGERS / "nothing", "no record"),
        ("", "where are the records"),
        ("persistent://a/b/c", "where are the records"),
    ],
)
def test_a_place_of_no_record_is_refused(source, match):
    with pytest.raises(OptionError, match=match):
        load(source)


def test_a_place_that_is_not_there_is_not_found(tmp_path):
    with pytest.raises(ObjectNotFoundError):
        load(tmp_path / "no" / "folder")


def test_two_records_of_one_topic_are_refused(tmp_path):
    for name in ("a", "a.val"):
        write(tmp_path / "t" / "n" / "persistent" / name)
    with pytest.raises(OptionError, match="two records are of the topic persistent://t/n/a"):
        load(tmp_path)
    with pytest.raises(OptionError, match="two records are of the topic persistent://t/n/a"):
        load({"t/n/a": RECORD, "persistent://t/n/a": RECORD})


def test_a_record_that_is_none_is_named(tmp_path):
    write(tmp_path / "t" / "n" / "persistent" / "a", b"\x0a\x05\x08")
    with pytest.raises(MetadataError, match=r"cannot be parsed.*persistent/a, byte 0"):
        load(tmp_path)
    with pytest.raises(MetadataError, match=r"cannot be parsed.*\(object a/b/c, byte 0\)"):
        load({"a/b/c": b"\x0a\x05\x08"})


def test_a_file_too_large_for_a_record_is_not_read(tmp_path):
    path = write(tmp_path / "t" / "n" / "persistent" / "a")
    with path.open("r+b") as file:
        file.truncate((64 << 20) + 1)
    with pytest.raises(BadLengthError, match=r"too large \(object .*persistent/a\)"):
        load(tmp_path)


def test_only_a_metadata_store_itself_tells_what_may_be_deleted(tmp_path):
    url = f"sqlite:{tmp_path}/records.db"
    store = SqliteStore(url, create=True)
    with open_tier(tmp_path) as tier:
        with open_records(url, tier.store, {}) as records, pytest.raises(OptionError, match="there is none"):
            require_complete(records)
        store.put("/managed-ledgers/a/b/persistent/c", RECORD, None)
        store.close()
        with open_records(url, tier.store, {}) as records:
            assert require_complete(records) == [TopicName("persistent://a/b/c")]
        for source, why in (
            (str(MANAGED_LEDGERS), "files are a copy"),
            ({"a/b/c": RECORD}, "given one by one"),
            ("http://127.0.0.1:1", "leave out what the caller may not see"),
        ):
            with open_records(source, tier.store, {}) as records, pytest.raises(OptionError, match=why):
                require_complete(records)


def test_a_record_is_read_as_it_is_now_also_of_a_topic_that_is_new(tmp_path):
    url, topic = f"sqlite:{tmp_path}/records.db", TopicName("persistent://a/b/c")
    store = SqliteStore(url, create=True)
    with open_tier(tmp_path) as tier, closing(store), open_records(url, tier.store, {}) as records:
        assert records.read([topic]) == {}
        store.put("/managed-ledgers/a/b/persistent/c", RECORD, None)
        assert list(records.read([topic])) == [topic]
