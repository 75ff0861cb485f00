"""Topics with streaming segments, in a tier and its records, for tests of the way back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from entries import LedgerPart, WrittenObject, pip17_object, streaming_object
from records import closed, copied, managed_ledger, segment
from tiers import MANAGED_LEDGER, TOPIC, Names, put, uuid_of

from offload_core.catalogue import TopicName, parse_topic
from offload_core.codec.object_format import ObjectKey
from offload_core.metadata import LedgerRecord, ManagedLedgerInfo, OffloadContext
from offload_core.tier import Tier

NAMED = Names(managed_ledger=MANAGED_LEDGER, cluster=None)
"""As this program writes them."""
NAMELESS = Names(managed_ledger=None, cluster=None)
ORDERS = parse_topic(TOPIC)


def put_object(
    tier: Tier,
    uuid: UUID,
    written: WrittenObject,
    *,
    names: Names = NAMED,
    parts: Sequence[str] = ("data", "index"),
    folder: str = "",
) -> ObjectKey:
    """An object under this uuid, or one of its two parts; its data key."""
    key = replace(written.key, uuid=uuid, folder=folder)
    for part, name, data in (("data", key.data_key, written.data), ("index", key.index_key, written.index)):
        if part in parts:
            put(tier, name, data, names.as_metadata(part))
    return key


def put_segment(tier: Tier, number: int, *shares: tuple[int, int, int], **options: object) -> ObjectKey:
    """A streaming object of these shares: ledger, first entry, and how many."""
    parts = [
        LedgerPart(ledger_id=ledger_id, blocks=[[b"x"] * count], first_entry_id=first)
        for ledger_id, first, count in shares
    ]
    return put_object(tier, uuid_of(number), streaming_object(parts), **options)  # type: ignore[arg-type]


def put_whole(tier: Tier, number: int, ledger_id: int, entries: int) -> ObjectKey:
    """A PIP-17 object."""
    return put_object(tier, uuid_of(number), pip17_object([b"x"] * entries, ledger_id=ledger_id))


def in_segments(
    ledger_id: int, entries: int, *ends: tuple[int, int], complete: bool = True, gone: bool = False
) -> LedgerRecord:
    """A closed ledger in segments: their uuids' numbers and last entries."""
    shares = [segment(uuid_of(number), end) for number, end in ends]
    context = OffloadContext.of_segments(shares, complete=complete, bookkeeper_deleted=gone)
    return closed(ledger_id, entries, context)


def in_one_object(ledger_id: int, entries: int, number: int, *, gone: bool = True) -> LedgerRecord:
    """A closed ledger in one object of this uuid's number."""
    return closed(ledger_id, entries, copied(uuid_of(number), bookkeeper_deleted=gone))


def topic(*ledgers: LedgerRecord) -> Mapping[TopicName, ManagedLedgerInfo]:
    """The record of the topic that all of this is about."""
    return {ORDERS: managed_ledger(*ledgers)}


def keys(tier: Tier) -> set[str]:
    """All that is in a tier."""
    return {listed.key for listed in tier.list_objects()}
