"""A topic switched between ledger-based and streaming offload, with a MapFile and a hot tail, as a fixture's value.

It is set up by a configuration alone, as an operator would: policies name the tier and say how it is offloaded.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from uuid import uuid4

from entries import entry
from mapfiles import mapfile
from stores import Store
from tiers import put_object

from offload_core.metadata.catalogue.known_tiers import tier_record
from offload_core.metadata.records import EntryPosition, OffloadContext
from offload_core.writing.configuration import load_configuration
from offload_core.writing.managed_ledger import (
    Environment,
    ManagedLedger,
    StreamingSettings,
    open_environment,
    open_managed_ledger,
)
from offload_core.writing.policy_store import open_policies

TOPIC = "persistent://acme/cold/switched"
NAME = "acme/cold/persistent/switched"
STREAMED = StreamingSettings(max_segment_bytes=1000, max_segment_age_s=3600)

Entry = tuple[EntryPosition, bytes]


@dataclass(kw_only=True)
class SwitchedTopic:
    """The topic, open here, and the steps of its life.

    Attributes:
        records: where its record is, as an option names it.
        entries: all that were acknowledged, in order.
    """

    store: Store
    environment: Environment
    topic: ManagedLedger
    records: str
    entries: list[Entry] = field(default_factory=list)

    def add(self, count):
        """Append messages, by ones and by batches."""
        payloads = [entry(b"%d" % (len(self.entries) + i)) for i in range(count)]
        half = count // 2
        for payload in payloads[:half]:
            self.entries.append((self.topic.add_entry(payload), payload))
        first = self.topic.add_entries(payloads[half:])
        for i, payload in enumerate(payloads[half:]):
            self.entries.append((first._replace(entry_id=first.entry_id + i), payload))

    def offload_ledgers(self):
        """Seal the ledger that is written, and offload all that are not offloaded yet."""
        self.topic.roll()
        self.topic.offload_prefix(EntryPosition(1 << 40, 0))

    def stream(self, *, on):
        """Switch streaming."""
        self.topic.set_streaming(STREAMED if on else None)

    def offload_as_mapfile(self):
        """Seal the ledger that is written, and give it the copy that Pulsar's filesystem offloader makes."""
        ledger_id = self.topic.last_position.ledger_id
        self.topic.roll()
        payloads = [payload for position, payload in self.entries if position.ledger_id == ledger_id]
        written = mapfile(payloads, ledger_id=ledger_id, managed_ledger=NAME)
        with self.store.open() as tier:
            key = put_object(tier, written, uuid4())
            driver = replace(tier_record(tier), name="filesystem")
        context = OffloadContext(uuid=key.uuid, complete=True, timestamp_ms=1, driver=driver)

        def record(info):
            ledger = info.ledger(ledger_id)
            assert ledger is not None
            return info.with_ledger(replace(ledger, context=context))

        self.environment.records.update(NAME, record)

    def ledgers(self):
        """As they are recorded."""
        return self.topic.read_info().in_order

    def cold(self):
        """The entries that complete copies have, by the record."""
        stops = {ledger.ledger_id: ledger.offloaded_stop or 0 for ledger in self.ledgers()}
        return [each for each in self.entries if each[0].entry_id < stops[each[0].ledger_id]]


def live(switched):
    """Switched back and forth: what PIP-76 asks for in its Tests Plan."""
    for count in (20, 15):
        switched.add(count)
        switched.offload_ledgers()
    switched.stream(on=True)
    switched.add(25)
    switched.topic.roll()
    switched.add(10)
    switched.topic.complete_segment(60)
    switched.stream(on=False)
    switched.add(5)  # of a ledger that is partly in a segment already
    switched.topic.roll()
    switched.topic.complete_segment(60)
    switched.add(12)
    switched.offload_ledgers()
    switched.add(10)
    switched.offload_as_mapfile()
    switched.add(9)
    switched.topic.roll()  # history, when it is switched on
    switched.stream(on=True)
    switched.add(30)
    switched.topic.roll()
    switched.add(4)
    switched.topic.complete_segment(60)
    switched.topic.roll()
    switched.stream(on=False)
    switched.add(7)


@contextmanager
def switched_topic(store, folder):
    """An empty topic whose tier is that store."""
    if store.name == "local":
        options = {"root": store.url}
    else:
        bucket, _, prefix = store.url.partition("://")[2].partition("/")
        options = {**store.options, "bucket": bucket, "prefix": prefix}
    config = folder / "offload.toml"
    extra = "".join(f"{name} = {json.dumps(value)}\n" for name, value in options.items())
    config.write_text(f"""
[metadata]
url = "sqlite:{folder}/records.db"
options.create = true
[hot_tier.options]
path = "{folder}/hot"
[policies]
driver = "{store.name}"
[policies.extra_configurations]
{extra}
""")
    configuration = load_configuration(config)
    with (
        open_policies(configuration) as (metadata, policies),
        open_environment(configuration, metadata, policies) as environment,
        open_managed_ledger(environment, NAME) as topic,
    ):
        yield SwitchedTopic(
            store=store, environment=environment, topic=topic, records=f"sqlite:{folder}/records.db"
        )
