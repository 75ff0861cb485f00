"""What namespaces and topics say of offloading and retention, kept in a metadata store, and what holds of it all."""

from offload_core.policy_store.level import LevelPolicies
from offload_core.policy_store.opening import open_policies
from offload_core.policy_store.resolved import ResolvedPolicies
from offload_core.policy_store.store import PolicyStore, namespace_of

__all__ = ["LevelPolicies", "PolicyStore", "ResolvedPolicies", "namespace_of", "open_policies"]
