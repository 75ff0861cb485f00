"""Garbage collection of a tier: what nothing needs is found by complete metadata, and deleted after a last look."""

from offload_core.gc.collection import Collection
from offload_core.gc.garbage import Garbage, Kind
from offload_core.gc.receipt import Receipt, written_receipt
from offload_core.gc.scope import Scope
from offload_core.gc.store_clock import measure_clock
from offload_core.gc.summary import Outcome, Summary
from offload_core.gc.topic_deletion import Proof, TopicDeletion

__all__ = [
    "Collection",
    "Garbage",
    "Kind",
    "Outcome",
    "Proof",
    "Receipt",
    "Scope",
    "Summary",
    "TopicDeletion",
    "measure_clock",
    "written_receipt",
]
