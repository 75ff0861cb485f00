"""How a service is set up: one typed tree from a TOML file, the environment and flags."""

from offload_core.configuration.loading import load_configuration
from offload_core.configuration.tree import (
    AuditLogSettings,
    Configuration,
    HotTierSettings,
    MetadataSettings,
    ServiceSettings,
    TenantPlace,
    TierSettings,
    TokenSettings,
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
