"""Layer that keeps pieces of objects in memory and on disk."""

from offload_layers.block_cache.layer import BlockCacheLayer

__all__ = ["BlockCacheLayer"]
