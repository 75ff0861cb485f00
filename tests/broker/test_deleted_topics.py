"""Topics that are deleted through Pulsar: exactly their leftovers in the bucket are reported."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from entries import read_whole
from live.broker import Place, PulsarAdmin, produce
from servers.broker import Broker
from waiting import wait_for

from offload_core.maintenance.gc import Collection, Scope
from offload_core.maintenance.verify import Code, Sealing, Verification
from offload_core.metadata.catalogue import open_records
from offload_core.metadata.catalogue.topics import managed_ledger_of_topic
from offload_core.metadata.stores import ManagedLedgerRecords, open_metadata_store
from offload_core.storage.tier import Tier
from offload_core.writing.audit import FileAuditLog

TOPICS = ("kept", "deleted", "left-behind")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A namespace of three offloaded topics, and its bucket, in which every object has checksums."""

    broker: Broker
    admin: PulsarAdmin
    namespace: str
    tier: Tier
    folder: Path
    sent: dict[str, dict[Place, int]]

    def topic(self, name):
        """Its full name."""
        return f"persistent://{self.namespace}/{name}"

    @property
    def keys(self):
        """All that lies in the bucket."""
        return {each.key for each in self.tier.list_objects()}

    def findings(self):
        """The findings of a verification by the broker's admin REST, of this namespace's topics."""
        records = partial(open_records, self.broker.endpoint, self.tier, {})
        verification = Verification(self.tier, deep=True, records=records)
        return [each for each in verification if each.topic is None or self.namespace in each.topic]

    def garbage(self):
        """The findings of a collection by a copy of all records that the broker has of the namespace."""
        url = f"sqlite:{self.folder / 'records.db'}"
        (self.folder / "records.db").unlink(missing_ok=True)
        store = open_metadata_store(url, {"create": "true"})
        with open_records(self.broker.endpoint, self.tier, {}) as of_broker:
            names = [each for each in of_broker.topics([self.namespace]) if self.namespace in str(each)]
            for topic, info in of_broker.read(names).items():
                ManagedLedgerRecords(store).write(managed_ledger_of_topic(topic), info, None)
        store.close()
        scope = Scope(grace=timedelta(0), clock_skew=timedelta(0), is_shared=False)
        collection = Collection(self.tier, partial(open_records, url, self.tier, {}), scope)
        return sorted(each.garbage.key for each in collection.report())


@pytest.fixture
def sealed(live, tmp_path):
    cold = live.new_cold_namespace()
    sent = {}
    for name in TOPICS:
        topic = cold.topic(name)
        sent[name] = produce(live.client, topic, [{"content": b"%d" % i} for i in range(40)])
        cold.offload(topic)
    with cold.store.open_reader() as tier:
        sealing = Sealing(tier.store, FileAuditLog(tmp_path / "audit.jsonl"))
        assert list(Verification(tier.store, deep=True, sealing=sealing)) == []
        yield Sealed(
            broker=live.broker,
            admin=live.admin,
            namespace=cold.name,
            tier=tier.store,
            folder=tmp_path,
            sent=sent,
        )


def gone(sealed, keys):
    """The broker deletes these some time after it has answered."""
    wait_for(lambda: not keys & sealed.keys)


def data_keys(sealed, name):
    """The data objects of a topic."""
    ledgers = sealed.admin.ledgers(sealed.topic(name))
    return {f"{each.uuid}-ledger-{each.ledger_id}" for each in ledgers if each.offloaded}


def test_what_deleted_topics_leave_is_named_exactly(sealed, consumers):
    assert (sealed.findings(), sealed.garbage()) == ([], [])
    kept, deleted, left = (data_keys(sealed, name) for name in TOPICS)
    assert sealed.keys == {
        f"{key}{end}" for key in kept | deleted | left for end in ("", "-index", "-checksums")
    }

    assert consumers.consume(sealed.topic("kept"), sealed.sent["kept"])  # checksums are nothing to the broker

    sealed.admin.delete(sealed.topic("deleted"))
    gone(sealed, {f"{key}{end}" for key in deleted for end in ("", "-index")})
    found = sealed.findings()
    assert {each.code for each in found} == {Code.CHECKSUMS_ORPHAN}
    assert sorted(each.key or "" for each in found) == sorted(f"{key}-checksums" for key in deleted)

    # As a broker leaves them that dies when it has deleted the record, and not yet the objects.
    keys = {f"{key}{end}" for key in left for end in ("", "-index", "-checksums")}
    held = [(sealed.tier.stat(key), read_whole(sealed.tier, key)) for key in sorted(keys)]
    sealed.admin.delete(sealed.topic("left-behind"))
    gone(sealed, {f"{key}{end}" for key in left for end in ("", "-index")})
    for stat, content in held:
        sealed.tier.write_index(stat.key, content, user_metadata=stat.user_metadata)
    assert sealed.garbage() == sorted(left | deleted)  # of one the objects, of the other their checksums
