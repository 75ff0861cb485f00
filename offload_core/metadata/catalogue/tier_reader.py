"""The start of a Python program: `open_tier`, and the tier that it opens."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from offload_core.metadata.catalogue.listing import list_catalogue
from offload_core.metadata.catalogue.model import Catalogue
from offload_core.metadata.catalogue.record_source import RecordSource, open_records, read_priorities
from offload_core.metadata.catalogue.recorded_catalogue import record_catalogue
from offload_core.metadata.catalogue.topics import TopicName
from offload_core.metadata.records import ManagedLedgerInfo, ReadPriority, parse_read_priority
from offload_core.storage.tier import (
    HotSpec,
    HotTier,
    PluginGiven,
    Tier,
    find_place,
    open_beside,
    plugin_spec,
)

if TYPE_CHECKING:
    from typing_extensions import Self


class TierReader:
    """A tier that is open for reading.

    Attributes:
        store: the Tier itself.
        options: those that its driver was given by name.
        catalogue_cache: what is read of its objects, to find topics and ledgers, is kept on disk: see `open_tier`.
    """

    def __init__(
        self, store: Tier, *, options: Mapping[str, object] | None = None, catalogue_cache: bool = False
    ) -> None:
        self.store = store
        self.options = dict(options or {})
        self.catalogue_cache = catalogue_cache

    def __repr__(self) -> str:
        return f"TierReader({self.store!r})"

    def topics(self) -> tuple[str, ...]:
        """The names of all topics in this tier, by its objects; those that name no topic have none.

        Raises:
            StoreError: the tier cannot be listed.
        """
        found = list_catalogue(self.store, read_indexes=False, cached=self.catalogue_cache)
        return tuple(dict.fromkeys(each.full_name for each in found.topics if each.full_name))

    def also(self, *tiers: str | os.PathLike[str] | Tier) -> TierReader:
        """This tier, read by records together with others that have the copies that it lacks; closing it closes all."""
        store = open_beside(self.store, tiers, self.options)
        return TierReader(store, options=self.options, catalogue_cache=self.catalogue_cache)

    def records(
        self, source: RecordSource, options: Mapping[str, object] | None = None
    ) -> dict[TopicName, ManagedLedgerInfo]:
        """All managed ledgers' records of a source, by topic.

        Args:
            source: a path or URL of a record's file, or of a tree of them, `<tenant>/<namespace>/persistent/<topic>`;
                for a file elsewhere `persistent://TENANT/NAMESPACE/TOPIC=FILE`; the URL of a metadata store, such as
                a broker's admin REST or a ZooKeeper (docs/metadata-stores.md); or records by topic.
            options: those of the source. Without any, a URL of the tier's own driver is opened with the tier's.

        Raises:
            OptionError, PluginError, FormatError, StoreError: of the source.
        """
        with open_records(source, self.store, self.options, options) as records:
            return records.read(records.topics())

    def catalogue(
        self,
        *,
        prefix: str = "",
        records: RecordSource | None = None,
        records_options: Mapping[str, object] | None = None,
        tiered_read_priority: ReadPriority | str | None = None,
    ) -> Catalogue:
        """The topics and ledgers of this tier, with their problems; `scan` takes it, and lists nothing then.

        Args:
            prefix: only objects whose keys begin so; with `records` the folder that they lie in.
            records: managed ledgers' records (see `records`), which name the copies. Without them the tier is listed,
                and Pulsar's own streaming objects have no topic.
            records_options: the options of `records`.
            tiered_read_priority: the copies that are to be read, of a tier with a hot one; None for that of policies.
        """
        if records is None:
            return list_catalogue(self.store, prefix=prefix, cached=self.catalogue_cache)
        given = tiered_read_priority
        priority = parse_read_priority(given) if isinstance(given, str) else given
        with open_records(records, self.store, self.options, records_options) as source:
            infos = source.read(source.topics())
            priorities = {} if self.store.hot is None else read_priorities(source, infos, priority)
        return record_catalogue(
            self.store, infos, prefix=prefix, priorities=priorities, cached=self.catalogue_cache
        )

    def close(self) -> None:
        """Close the store's connections and threads."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_tier(
    url_or_driver: str | os.PathLike[str],
    *,
    driver: str | None = None,
    layers: Sequence[PluginGiven] | None = None,
    hot: PluginGiven | None = None,
    catalogue_cache: bool = True,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> TierReader:
    """Open a tier.

    Args:
        url_or_driver: a URL whose scheme picks the driver (`file:///data/tier`), a path, a driver's name, or the name
            of a tier in the user's file or the environment (docs/configuration.md).
        driver: a driver's name, which overrides the scheme.
        layers: layers around the driver, outermost first (docs/layers.md): each a pair of name and options, or
            a text, `retry` or `retry:attempts=5`. None for those that the driver asks for.
        hot: the store of ledgers that are not offloaded yet (docs/live-clusters.md): a pair of name and options, or
            a text, `bookkeeper:url=zk://host:2181`. It is read by records, together with this tier.
        catalogue_cache: keep user metadata and indexes of objects that do not change in this user's cache folder, so
            that the next look needs a listing only (docs/performance.md). Not for files and HDFS, which have no
            versions of objects.
        storage_options: the driver's own options as a dict, as fsspec and pandas have them.
        options: the driver's own options by name.

    Raises:
        UnknownPluginError, MissingExtraError, BrokenPluginError: of the driver or a layer.
        OptionError: an option is missing or wrong.
    """
    place = find_place(
        url_or_driver, driver=driver, layers=layers, storage_options=storage_options, options=options
    )
    store = Tier.open(place.spec)
    if hot is not None:
        store = store.with_hot(HotTier(HotSpec(store=plugin_spec(hot, "ledger store"))))
    return TierReader(store, options=place.options, catalogue_cache=catalogue_cache)
