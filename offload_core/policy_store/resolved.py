"""What holds for a topic or a namespace, of offloading and of retention, and who says so."""

from __future__ import annotations

from dataclasses import dataclass

from offload_core.policies import EffectivePolicies, RetentionPolicies
from offload_core.policies.effective import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedPolicies:
    """What holds; of retention the lowest level that says anything counts as a whole."""

    offload: EffectivePolicies
    retention: RetentionPolicies
    retention_origin: Origin

    def explain(self) -> list[tuple[str, str, Origin]]:
        """Each value that anybody says anything of: Pulsar's name, text with secrets masked, origin."""
        kept = self.retention.model_dump(by_alias=True)
        rows = [(name, str(value), self.retention_origin) for name, value in kept.items()]
        return [*self.offload.explain(), *rows]
