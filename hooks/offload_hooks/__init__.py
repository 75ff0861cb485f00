"""The contract of drivers and layers of pulsar-offload: hook specs, their values and errors."""

from offload_hooks.specs import HOOK_SPEC_VERSION, OPTIONAL_HOOKS, PROJECT, TierHooks, hookimpl, hookspec
from offload_hooks.values import (
    BlockReceipt,
    ByteRange,
    Capabilities,
    DriverDescription,
    ListedObject,
    ObjectStat,
    ReadableBuffer,
    StaleUpload,
    Upload,
    WholeObject,
)

__all__ = [
    "HOOK_SPEC_VERSION",
    "OPTIONAL_HOOKS",
    "PROJECT",
    "BlockReceipt",
    "ByteRange",
    "Capabilities",
    "DriverDescription",
    "ListedObject",
    "ObjectStat",
    "ReadableBuffer",
    "StaleUpload",
    "TierHooks",
    "Upload",
    "WholeObject",
    "hookimpl",
    "hookspec",
]
