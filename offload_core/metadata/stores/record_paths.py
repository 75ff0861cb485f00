"""Pulsar's paths in a metadata store: managed ledgers' records, and the names by which a live Pulsar's store is known.

Records are at `/managed-ledgers/<tenant>/<namespace>/persistent/<topic>`; namespaces of Pulsar 1 have a cluster's name
between tenant and namespace. The rest after `/managed-ledgers/` is the managed ledger's name. Source:
docs/metadata-stores.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from offload_core.metadata.records.managed_ledger_info import ManagedLedgerInfo
from offload_core.metadata.records.stored_record import parse_stored_record
from offload_hooks.bounded_map import bounded_map
from offload_hooks.errors import OptionError, placed
from offload_hooks.metadata_stores import MetadataStore, check_path

_ROOT = "/managed-ledgers"
_DOMAIN = "persistent"
_OTHER_DOMAIN = "non-persistent"

CONCURRENCY = 32
"""Requests at once: fewer than to a bucket, because a broker or a ZooKeeper has other clients."""


def record_path(name: str) -> str:
    """The path of a managed ledger's record; `InvalidKeyError` for a name that would lead elsewhere."""
    return check_path(f"{_ROOT}/{name}")


def is_record_path(path: str) -> bool:
    """Return whether a managed ledger's record may be at a path: a cursor's, or anything else, is elsewhere."""
    return path.startswith(f"{_ROOT}/") and path.split("/")[-2] == _DOMAIN


def list_names(store: MetadataStore, namespaces: Collection[str] | None = None) -> list[str]:
    """The names of the managed ledgers of these namespaces (`tenant/namespace`), or of all.

    A request for each tenant, and two for each namespace, several at once. Errors as `MetadataStore.children`.
    """

    def below(parents: Iterable[str]) -> list[tuple[str, str]]:
        places = [check_path(parent) for parent in parents]
        names = bounded_map(store.children, places, at_once=CONCURRENCY, name="offload-records")
        return [(f"{p}/{name}", name) for p, of in zip(places, names, strict=True) for name in of]

    if namespaces is None:
        tenants = [path for path, _ in below([_ROOT])]
        roots = [path for path, _ in below(tenants)]
    else:
        roots = [f"{_ROOT}/{name}" for name in namespaces]
    domains = below(roots)
    domains += below(path for path, name in domains if name not in (_DOMAIN, _OTHER_DOMAIN))
    found = below(path for path, name in domains if name == _DOMAIN)
    return [path.removeprefix(f"{_ROOT}/") for path, _ in found]


def read_record(store: MetadataStore, name: str) -> tuple[ManagedLedgerInfo, int] | None:
    """Read a managed ledger's record, with any wrapping, and its version; None if there is none.

    Raises:
        FormatError: it cannot be parsed, with its path. Others as `MetadataStore.get`.
    """
    path = record_path(name)
    found = store.get(path)
    if found is None:
        return None
    value, version = found
    with placed(key=path):
        return parse_stored_record(value).info, version


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
"""Nodes of Pulsar and BookKeeper below their root: no root of ours is one of them, or below one."""

_OTHERS = ("admin", "bookies", "ledgers", "loadbalance")
"""Nodes that do not occur in a metadata store of ours."""


def refuse_live_pulsar(store: MetadataStore) -> None:
    """Refuse a store of a live Pulsar (`OptionError`): it has more than managed ledgers' records."""
    found = [name for name in _OTHERS if store.children(f"/{name}")]
    if found:
        raise OptionError(
            "nothing is written to a metadata store where a live Pulsar's tree is",
            expected="a store of our own",
            found=", ".join(found),
            hint="Name a root of its own: zk://host:2181/pulsar-offload",
        )
