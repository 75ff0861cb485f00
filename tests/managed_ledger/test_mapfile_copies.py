"""A ledger whose cold copy is a MapFile of Pulsar's filesystem offloader: its hot copy goes, and so does it itself."""

from pathlib import Path

import pytest
from scenes.switched import switched_topic
from stores import Store

from offload_core.writing.managed_ledger import delete_managed_ledger
from offload_hooks.errors import DataLossError


@pytest.fixture
def store(tmp_path):
    return Store(name="local", url=str(tmp_path / "cold"))


def files(store):
    return sorted(path.name for path in Path(store.url).rglob("*") if path.is_file() and path.name != "lock")


def with_mapfile(switched):
    switched.add(10)
    switched.offload_as_mapfile()
    return switched.topic.last_position.ledger_id


def test_its_hot_copy_is_deleted_and_it_is_read(store, tmp_path):
    with switched_topic(store, tmp_path) as switched:
        ledger_id = with_mapfile(switched)
        assert switched.topic.delete_hot_copies(0) == [ledger_id]
        read = switched.topic.read_entries(switched.entries[0][0], 100)
        assert [bytes(payload) for _, payload in read] == [payload for _, payload in switched.entries]


def test_a_hot_copy_stays_where_the_mapfile_is_gone(store, tmp_path):
    with switched_topic(store, tmp_path) as switched:
        with_mapfile(switched)
        for path in Path(store.url).rglob("index"):
            path.unlink()
        with pytest.raises(DataLossError, match="/index"):
            switched.topic.delete_hot_copies(0)


def test_with_its_topic_all_its_files_go(store, tmp_path):
    with switched_topic(store, tmp_path) as switched:
        with_mapfile(switched)
        (folder,) = {path.parent for path in Path(store.url).rglob("data")}
        for name in (".data.crc", ".index.crc"):
            (folder / name).write_bytes(b"")
        delete_managed_ledger(switched.environment, switched.topic.name)
        assert files(store) == []
