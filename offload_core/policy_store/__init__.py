"""Policies of namespaces and topics, kept in a metadata store, and those in force of them all."""

from offload_core.policy_store.level import LevelPolicies
from offload_core.policy_store.store import PolicyStore, ResolvedPolicies, namespace_of, open_policies

__all__ = ["LevelPolicies", "PolicyStore", "ResolvedPolicies", "namespace_of", "open_policies"]
