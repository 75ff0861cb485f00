"""Names of what is created first, records, ledgers, objects and folders, are durable before anybody relies on them."""

from contextlib import closing

from offload_core.metadata.records.relocations import MappingFile
from offload_core.metadata.stores import open_metadata_store
from offload_core.storage.hot import FileLedgerStore
from offload_drivers.local import LocalDriver


def test_a_ledger_and_the_folders_above_it(tmp_path, synced):
    root = tmp_path / "a" / "hot"
    with closing(FileLedgerStore(root)) as store:
        store.create({})
    assert {tmp_path, tmp_path / "a", root, root / "next-ledger-id"} <= set(synced)
    assert synced[-1] == root


def test_an_object_its_sidecar_and_the_folders_above_them(tmp_path, synced):
    root = tmp_path / "a" / "tier"
    driver = LocalDriver(str(root))
    upload = driver.begin_data("b/c/k", "x/y", {"a": "b"})
    assert {tmp_path, tmp_path / "a", root, root / ".offload-uploads"} <= set(synced)
    synced.clear()
    driver.commit_data(upload, [driver.write_block(upload, 1, 0, b"data")], False)
    folders = [path for path in synced if path.is_dir()]
    assert [folders.index(each) for each in (root, root / "b")] == [0, 1]
    assert folders.count(root / "b" / "c") == 2  # of the sidecar, then of the object


def test_a_metadata_database(tmp_path, synced):
    with closing(open_metadata_store(f"sqlite:{tmp_path}/records.db", {"create": True})):
        assert tmp_path in synced


def test_a_mapping_of_relocations(tmp_path, synced):
    with MappingFile(tmp_path / "mapping"):
        assert tmp_path in synced
