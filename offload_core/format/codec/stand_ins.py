"""What an object's user metadata says of a copy that stands in for one that records still name.

Records that are not ours, as a live Pulsar's, go on naming a copy that was relocated by a mapping, or repaired, until
somebody changes them. Until then nothing but this tells that the new copy is needed. Source: docs/formats/index.md,
User metadata.
"""

from __future__ import annotations

from collections.abc import Mapping

from offload_core.format.codec.salvaged_objects import REPAIRED_FROM_KEY

MAPPED_KEY = "pulsaroffloadmapped"
"""A mapping of relocations names the object; records perhaps not yet."""


def stands_in(user_metadata: Mapping[str, str]) -> bool:
    """Whether an object was made to stand in for a copy that records may still name."""
    return MAPPED_KEY in user_metadata or REPAIRED_FROM_KEY in user_metadata
