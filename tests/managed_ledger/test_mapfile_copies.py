"""A ledger whose cold copy is a MapFile of Pulsar's filesystem offloader: its hot copy goes, and so does it itself."""

import pytest
from scenes.switched import switched_topic
from stores import Store

from offload_core.writing.managed_ledger import delete_managed_ledger
from offload_hooks.errors import DataLossError


@pytest.fixture
def switched(tmp_path):
    """A topic of one ledger, which has such a copy."""
    with switched_topic(Store(name="local", url=str(tmp_path / "cold")), tmp_path) as switched:
        switched.add(10)
        switched.offload_as_mapfile()
        yield switched


def test_its_hot_copy_is_deleted_and_it_is_read(switched):
    first, last = switched.entries[0][0], switched.topic.last_position
    assert switched.topic.delete_hot_copies(0) == [last.ledger_id]
    assert [
        (at, bytes(payload)) for at, payload in switched.topic.read_entries(first, 100)
    ] == switched.entries


def test_a_hot_copy_stays_where_the_mapfile_is_gone(switched, tmp_path):
    for path in (tmp_path / "cold").rglob("index"):
        path.unlink()
    with pytest.raises(DataLossError, match="/index"):
        switched.topic.delete_hot_copies(0)


def test_with_its_topic_all_its_files_go(switched, tmp_path):
    (folder,) = {path.parent for path in (tmp_path / "cold").rglob("data")}
    for name in (".data.crc", ".index.crc"):
        (folder / name).write_bytes(b"")
    delete_managed_ledger(switched.environment, switched.topic.name)
    assert [path.name for path in (tmp_path / "cold").rglob("*") if path.is_file()] == ["lock"]
