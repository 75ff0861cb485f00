"""Garbage collection of a tier: what nothing needs is found by complete metadata, and deleted after a last look."""

from offload_core.maintenance.gc.collection import Collection, measure_clock
from offload_core.maintenance.gc.garbage import CollectionSummary, Garbage, GarbageKind, RemovalOutcome, Scope
from offload_core.maintenance.gc.topic_deletion import Proof, Receipt, TopicDeletion, written_receipt

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
