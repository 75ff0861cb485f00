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
    load_configuration,
)
from offload_core.writing.settings.store import (
    PolicyStore,
    ResolvedPolicies,
    configured_policies,
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
    "load_configuration",
    "open_policies",
]
