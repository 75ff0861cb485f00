"""Records are rebuilt of topics of all kinds of messages; by them all is read that Pulsar's clients read."""

import pytest
from live.kinds import KINDS, assert_is_as_clients_read, damage, entries_of, messages_of, put_kinds
from managed_ledgers import Audit
from records import recover

from offload_core.maintenance.repair import Repair
from offload_core.metadata.catalogue.topics import topic_of_managed_ledger
from offload_hooks.errors import DataLossError
from pulsar_offload import TierReader


@pytest.fixture
def tier(tier):
    put_kinds(tier)
    return tier


def infos(records):
    found = {str(topic_of_managed_ledger(name)): records.read(name) for name in records.names()}
    return {topic: known.info for topic, known in found.items() if known is not None}


@pytest.mark.parametrize("kind", KINDS)
def test_by_recovered_records_messages_are_read_as_pulsars_clients_read_them(tier, records, kind):
    recover(tier, records)
    found = infos(records)
    assert len(found) == len(KINDS)
    assert_is_as_clients_read(TierReader(tier), kind, records=found)


def test_by_recovered_records_a_message_that_lost_a_chunk_is_an_error(tier, records):
    """The chunk is in ledger 2, the message's last one in ledger 3."""
    lost = (2, 18)
    before = messages_of(TierReader(tier), "chunks")
    damage(tier, lost, entries_of(TierReader(tier), "chunks")[lost])
    work = Repair(tier, quarantine=True, now_ms=lambda: 1 << 42)
    for planned in work.plan():
        work.do(planned, Audit())
    recover(tier, records)
    found = {"records": infos(records)}
    with pytest.raises(DataLossError, match="1 entries: 2:18"):
        messages_of(TierReader(tier), "chunks", **found)
    rest = messages_of(TierReader(tier), "chunks", fail_on_data_loss=False, mode="PERMISSIVE", **found)
    assert rest == [row for row in before if (row["__ledgerId"], row["__entryId"]) != (3, 0)]
    for kind in set(KINDS) - {"chunks"}:
        assert_is_as_clients_read(TierReader(tier), kind, **found)
