"""MapFiles by their topic's record, beside the other formats."""

from dataclasses import replace

import pytest
from entries import LedgerPart, pip17_object, streaming_object
from golden import COLUMNS, assert_topic_is_as_expected
from mapfiles import (
    FILESYSTEM,
    FILESYSTEM_OBJECTS,
    FILESYSTEM_TOPICS,
    lay_out_golden,
    lay_out_mapfile,
    mapfile,
)
from records import closed, copied, managed_ledger, segment, still_open
from tiers import TOPIC, Names, lay_out, uuid_of

from offload_core.format.codec.object_format import ObjectFormat, parse_key
from offload_core.metadata.catalogue import Problem
from offload_core.metadata.records import DriverMetadata, OffloadContext
from offload_hooks.errors import DataLossError
from pulsar_offload import open_tier, scan

DRIVER = DriverMetadata(name="filesystem", properties=(("storageBasePath", "/pulsar"),))
ENTRIES = {("avro", 9): 1000, ("avro", 12): 266, ("batch", 13): 138}


def golden_record(topic):
    """The record of a golden topic; its own was not kept."""
    ledgers = []
    for path in sorted((FILESYSTEM_OBJECTS / "acme" / "cold" / "persistent" / topic).iterdir()):
        key = parse_key(f"{path.relative_to(FILESYSTEM_OBJECTS)}/data")
        ledgers.append(closed(key.ledger_id, ENTRIES[topic, key.ledger_id], copied(key.uuid, driver=DRIVER)))
    return managed_ledger(*ledgers, still_open(76))


@pytest.mark.parametrize("topic", FILESYSTEM_TOPICS)
def test_a_topic_is_read_by_its_record_as_pulsars_clients_read_it(tmp_path, topic):
    lay_out_golden(tmp_path)
    with open_tier(tmp_path) as tier:
        planned = scan(
            tier, f"acme/cold/{topic}", columns=COLUMNS, records={f"acme/cold/{topic}": golden_record(topic)}
        )
        assert_topic_is_as_expected(planned.to_table().to_pylist(), topic, FILESYSTEM)


def test_ledgers_of_all_formats_are_read_as_one_topic(tmp_path):
    """In a folder of the tier."""
    nameless = Names(managed_ledger=None)
    pip17 = pip17_object([b"a", b"b"], ledger_id=1)
    streaming = streaming_object([LedgerPart(ledger_id=2, blocks=[[b"c"], [b"d"]])])
    for attempt, written in enumerate((pip17, streaming), start=1):
        lay_out(tmp_path, written, attempt=attempt, names=nameless, folder="east/")
    written = mapfile([b"e", b"f"], ledger_id=3)
    lay_out_mapfile(tmp_path, replace(written, key=replace(written.key, folder=f"east/{written.key.folder}")))
    ledgers = [
        closed(3, 2, copied(written.key.uuid, driver=DRIVER)),
        closed(2, 2, OffloadContext.of_segments([segment(uuid_of(2), 1)], complete=True)),
        closed(1, 2, copied(uuid_of(1))),
    ]
    records = {TOPIC: managed_ledger(*ledgers)}
    with open_tier(tmp_path) as tier:
        (topic,) = tier.catalogue(records=records, prefix="east/").topics
        formats = (ObjectFormat.PIP17, ObjectFormat.STREAMING, ObjectFormat.MAPFILE)
        assert [ledger.formats for ledger in topic.ledgers] == [(each,) for each in formats]
        table = scan(tier, TOPIC, level="entries", records=records, prefix="east/").to_table()
    assert b"".join(table["value"].to_pylist()) == b"abcdef"
    assert set(table["__topic"].to_pylist()) == {TOPIC}


def test_a_mapfile_that_is_not_there_is_loss(tmp_path):
    records = {TOPIC: managed_ledger(closed(3, 2, copied(uuid_of(3), driver=DRIVER)))}
    with open_tier(tmp_path) as tier:
        (stored,) = tier.catalogue(records=records).problems
        assert stored.problem is Problem.MISSING
        assert stored.key.data_key == f"acme/cold/persistent/orders/3-{uuid_of(3)}/data"
        assert stored.detail == "its record says that filesystem has it; it is not here"
        with pytest.raises(DataLossError, match="filesystem has it"):
            scan(tier, TOPIC, records=records)
