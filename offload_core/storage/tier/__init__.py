"""Open a tier: a driver and its layers behind one typed face, the only caller of the driver hooks."""

from offload_core.storage.tier.block_upload import check_blocks, upload_blocks
from offload_core.storage.tier.chain import Layer
from offload_core.storage.tier.memory_budget import MemoryBudget
from offload_core.storage.tier.registry import (
    HotSpec,
    PluginReport,
    PluginSpec,
    RecordsPlace,
    TierSpec,
    driver_of_scheme,
    is_schema_provider,
    load_driver,
    make_key_provider,
    make_schema_provider,
    survey,
)
from offload_core.storage.tier.tier import HotTier, Tier
from offload_core.storage.tier.upload_process import (
    DEFAULT_TIMEOUTS,
    UploadProcess,
    UploadTimeouts,
    open_with_upload_process,
)
from offload_core.storage.tier.urls import (
    Place,
    PluginGiven,
    find_place,
    open_beside,
    open_like,
    open_store,
    parse_layers,
    parse_plugin,
    plugin_spec,
)
from offload_core.storage.tier.watched_tiers import MeasuredTier, Requests

__all__ = [
    "DEFAULT_TIMEOUTS",
    "HotSpec",
    "HotTier",
    "Layer",
    "MeasuredTier",
    "MemoryBudget",
    "Place",
    "PluginGiven",
    "PluginReport",
    "PluginSpec",
    "RecordsPlace",
    "Requests",
    "Tier",
    "TierSpec",
    "UploadProcess",
    "UploadTimeouts",
    "check_blocks",
    "driver_of_scheme",
    "find_place",
    "is_schema_provider",
    "load_driver",
    "make_key_provider",
    "make_schema_provider",
    "open_beside",
    "open_like",
    "open_store",
    "open_with_upload_process",
    "parse_layers",
    "parse_plugin",
    "plugin_spec",
    "survey",
    "upload_blocks",
]
