"""Offload topics of a running cluster beside its brokers, by the changes of records that are safe."""

from offload_core.maintenance.live.live_cluster import LiveCluster, open_live_cluster
from offload_core.maintenance.live.live_offloads import LiveTopicOffloads

__all__ = ["LiveCluster", "LiveTopicOffloads", "open_live_cluster"]
