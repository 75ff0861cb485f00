"""A Tier as plain values: what crosses to another process, which opens the Tier anew from it.

Options may hold credentials, so no repr here shows an option's value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSpec:
    """A layer: its entry-point name and its options."""

    name: str
    options: Mapping[str, object] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSpec:
    """A driver's entry-point name, its options, and the layers over it, outermost first.

    `others` are tiers from which it reads what it lacks.
    """

    driver: str
    options: Mapping[str, object] = field(default_factory=dict, repr=False)
    layers: tuple[LayerSpec, ...] = ()
    others: tuple[TierSpec, ...] = ()
