"""Collect garbage: find the objects that no record needs, judge them once more, delete them."""

from offload_core.maintenance.gc.collection import (
    Collection,
    Proof,
    Receipt,
    TopicDeletion,
    measure_clock,
    written_receipt,
)
from offload_core.maintenance.gc.garbage import CollectionSummary, Garbage, GarbageKind, RemovalOutcome, Scope

__all__ = [
    "Collection",
    "CollectionSummary",
    "Garbage",
    "GarbageKind",
    "Proof",
    "Receipt",
    "RemovalOutcome",
    "Scope",
    "TopicDeletion",
    "measure_clock",
    "written_receipt",
]
