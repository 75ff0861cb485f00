"""The configuration of a service: one typed tree from a TOML file, the environment and flags."""

from offload_core.configuration.loading import (
    AuditLogSettings,
    Configuration,
    HotTierSettings,
    MetadataSettings,
    ServiceSettings,
    TenantPlace,
    TierSettings,
    TokenSettings,
    load_configuration,
)

__all__ = [
    "AuditLogSettings",
    "Configuration",
    "HotTierSettings",
    "MetadataSettings",
    "ServiceSettings",
    "TenantPlace",
    "TierSettings",
    "TokenSettings",
    "load_configuration",
]
