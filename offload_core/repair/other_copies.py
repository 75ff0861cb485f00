"""Another complete copy of a damaged ledger, which makes it needless to save what is left of that.

What is saved lacks what is lost, and is newer than all other copies: it would be read in their place. So a copy is
looked for that is right to its last byte, has all entries that are expected, and each that the damaged one still has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from offload_core.catalogue.listing import find_pair, stream_pairs
from offload_core.codec.object_format import CLUSTER_KEY, TOPIC_KEY, ObjectKey
from offload_core.repair.contents import Contents, Expected, read_contents
from offload_core.repair.mapfile_contents import read_mapfile_contents
from offload_core.repair.object_bytes import ObjectBytes
from offload_core.repair.salvage import Salvage
from offload_core.tier import Tier
from offload_core.verify.deep import DeepCheck, DeepTask
from offload_core.verify.objects import Examined, examine


def copies_of(tier: Tier, ledger_ids: Collection[int]) -> Mapping[int, list[ObjectKey]]:
    """The objects that are of one of these ledgers alone, by ledger; of whichever topic.

    Raises:
        StoreError: the tier cannot be listed.
    """
    found: dict[int, list[ObjectKey]] = defaultdict(list)
    for pair in stream_pairs(tier) if ledger_ids else ():
        ledger_id = pair.key.ledger_id
        if ledger_id in ledger_ids and ledger_id is not None and pair.data and pair.index:
            found[ledger_id].append(pair.key)
    return found


def find_other(
    tier: Tier, salvage: Salvage, managed_ledger: str | None, candidates: Iterable[ObjectKey]
) -> ObjectKey | None:
    """The one of these that has all that the ledger of a damaged object should have; None if there is none.

    Args:
        managed_ledger: by its record, which counts where the object does not say it.

    Raises:
        StoreError: the tier fails.
    """
    name = salvage.key.managed_ledger or salvage.said.get(TOPIC_KEY) or managed_ledger
    whose = (name, salvage.said.get(CLUSTER_KEY))
    own = {salvage.key.data_key, salvage.target.data_key}
    for key in sorted(candidates, key=lambda each: each.data_key):
        if name is None or key.data_key in own:
            continue
        pair = find_pair(tier, key)
        examined = None if pair is None else examine(tier, pair)
        if examined is None or (examined.managed_ledger, examined.cluster) != whose:
            continue
        if _is_right(tier, examined) and _has_all(_contents(tier, examined), salvage.contents):
            return key
    return None


def _is_right(tier: Tier, examined: Examined) -> bool:
    """Whether nothing at all is wrong with a copy, and it has every entry of its ledger."""
    if not examined.is_sound or examined.findings or examined.has_gaps or examined.is_filtered:
        return False
    result = DeepCheck(tier=tier)(DeepTask.of(0, examined))
    if result.failure is not None:
        raise result.failure
    return not result.is_gone and not result.findings


def _contents(tier: Tier, examined: Examined) -> Contents:
    pair, key, index = examined.pair, examined.key, examined.index
    assert pair.data is not None
    data = ObjectBytes(tier, key.data_key, pair.data.size_bytes)
    if key.is_mapfile:
        return read_mapfile_contents(data, key, Expected()).contents
    return read_contents(data, key, index=index, expected={}, gaps=False)


def _has_all(other: Contents, damaged: Contents) -> bool:
    (ledger,) = other.ledgers or (None,)
    if ledger is None or ledger.lost():
        return False
    entries = {entry.entry_id: entry for entry in ledger.entries}
    return all(
        each.stop <= ledger.stop
        and all(
            entry.entry_id in entries and other.payload(entries[entry.entry_id]) == damaged.payload(entry)
            for entry in each.entries
        )
        for each in damaged.ledgers
    )
