"""Offload topics of a running cluster beside its brokers, and replace copies, by changes of records that are safe."""

from offload_core.maintenance.live.live_cluster import LiveCluster, open_live_cluster
from offload_core.maintenance.live.live_copies import LiveCopies
from offload_core.maintenance.live.live_offloads import LiveTopicOffloads
from offload_core.maintenance.live.live_replacements import LiveReplacements

__all__ = ["LiveCluster", "LiveCopies", "LiveReplacements", "LiveTopicOffloads", "open_live_cluster"]
