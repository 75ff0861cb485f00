"""Whether a metadata store is a live Pulsar's, by the names that Pulsar and BookKeeper have there; nothing is written.

A ZooKeeper refuses to be written there in any case; so who only looks is told as well. Source: docs/metadata-stores.md
"""

from __future__ import annotations

from offload_hooks.errors import OptionError
from offload_hooks.metadata_stores import MetadataStore

PULSARS = frozenset(
    (
        "admin",
        "bookies",
        "counters",
        "ledgers",
        "loadbalance",
        "managed-ledgers",
        "namespace",
        "schemas",
        "stream",
    )
)
"""Names of nodes that Pulsar and BookKeeper have below their own root: no root of ours is one of them or below."""

_OTHERS = ("admin", "bookies", "ledgers", "loadbalance")
"""Those of them that no metadata store of ours has anything below."""


def refuse_live_pulsar(store: MetadataStore) -> None:
    """Refuse a store that has more of Pulsar's than managed ledgers' records.

    Raises:
        OptionError: it has. StoreError: it cannot be read.
    """
    found = [name for name in _OTHERS if store.children(f"/{name}")]
    if found:
        raise OptionError(
            "nothing is written to a metadata store where a live Pulsar's tree is",
            expected="a store of our own",
            found=", ".join(found),
            hint="Name a root of its own: zk://host:2181/pulsar-offload",
        )
