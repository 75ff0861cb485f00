"""Garbage collection of a tier: what nothing needs is found by complete metadata, and deleted after a last look."""

from offload_core.gc.collection import Collection
from offload_core.gc.garbage import Garbage, Kind
from offload_core.gc.scope import Scope
from offload_core.gc.store_clock import measure_clock
from offload_core.gc.summary import Outcome, Summary

__all__ = ["Collection", "Garbage", "Kind", "Outcome", "Scope", "Summary", "measure_clock"]
