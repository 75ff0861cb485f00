"""Load the configuration of a service, and keep policies of namespaces and topics."""

from offload_core.metadata.policies.level import LevelPolicies
from offload_core.writing.settings.loading import (
    AuditLogSettings,
    Configuration,
    HotTierSettings,
    LiveSettings,
    MetadataSettings,
    ServiceSettings,
    TenantPlace,
    TierSettings,
    TokenSettings,
    in_clear,
    load_configuration,
)
from offload_core.writing.settings.store import (
    PolicyStore,
    ResolvedPolicies,
    configured_policies,
    open_configured_store,
    open_policies,
)

__all__ = [
    "AuditLogSettings",
    "Configuration",
    "HotTierSettings",
    "LevelPolicies",
    "LiveSettings",
    "MetadataSettings",
    "PolicyStore",
    "ResolvedPolicies",
    "ServiceSettings",
    "TenantPlace",
    "TierSettings",
    "TokenSettings",
    "configured_policies",
    "in_clear",
    "load_configuration",
    "open_configured_store",
    "open_policies",
]
