"""Managed ledgers' records in a metadata store: which topics there are, and the records of those that are wanted.

Below `/managed-ledgers` lies `<tenant>/<namespace>/persistent/<topic>`; the namespaces of Pulsar 1 have a cluster's
name between the two.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor

from offload_core.catalogue.topics import TopicName, topic_of_managed_ledger
from offload_core.metadata import ManagedLedgerInfo, parse_stored_record
from offload_core.metadata.stored_record import MAX_RECORD_BYTES
from offload_hooks.errors import BadLengthError, OptionError, placed
from offload_hooks.metadata_stores import MetadataStore

_ROOT = "/managed-ledgers"
_DOMAIN = "persistent"
_OTHER_DOMAIN = "non-persistent"

CONCURRENCY = 32
"""Requests at once: fewer than of a bucket, for a broker or a ZooKeeper serves others as well."""


class StoreRecords:
    """The records of a metadata store; see `record_source.Records`."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._paths: dict[TopicName, str] = {}

    def topics(self, namespaces: Collection[str] | None = None) -> list[TopicName]:
        """The topics of these namespaces, or of all: a request for each tenant, and two for each namespace."""
        with ThreadPoolExecutor(CONCURRENCY, thread_name_prefix="offload-records") as pool:

            def below(parents: Iterable[str]) -> list[tuple[str, str]]:
                places = [_checked(parent) for parent in parents]
                names = pool.map(self._store.children, places)
                return [(f"{p}/{name}", name) for p, of in zip(places, names, strict=True) for name in of]

            if namespaces is None:
                tenants = [path for path, _ in below([_ROOT])]
                roots = [path for path, _ in below(tenants)]
            else:
                roots = [f"{_ROOT}/{name}" for name in namespaces]
            domains = below(roots)
            domains += below(path for path, name in domains if name not in (_DOMAIN, _OTHER_DOMAIN))
            found = below(path for path, name in domains if name == _DOMAIN)
        paths = {topic_of_managed_ledger(path.removeprefix(f"{_ROOT}/")): path for path, _ in found}
        self._paths |= paths
        return list(paths)

    def read(self, topics: Iterable[TopicName]) -> dict[TopicName, ManagedLedgerInfo]:
        """Read the records of these topics, several at once; one that has vanished meanwhile is left out."""
        wanted = list(topics)
        with ThreadPoolExecutor(CONCURRENCY, thread_name_prefix="offload-records") as pool:
            infos = list(pool.map(self._read_one, wanted))
        return {topic: info for topic, info in zip(wanted, infos, strict=True) if info is not None}

    def _read_one(self, topic: TopicName) -> ManagedLedgerInfo | None:
        path = self._paths[topic]
        found = self._store.get(_checked(path))
        if found is None:
            return None
        value, _ = found
        with placed(key=path):
            if len(value) > MAX_RECORD_BYTES:
                raise BadLengthError(
                    "a managed ledger's record is too large",
                    expected=f"at most {MAX_RECORD_BYTES} bytes",
                    found=len(value),
                )
            return parse_stored_record(value).info


def _checked(path: str) -> str:
    """The path, if none of its parts leads elsewhere: names come from users and from servers."""
    if any(part in ("", ".", "..") or not part.isprintable() for part in path.split("/")[1:]):
        raise OptionError("a topic has a name that a metadata store cannot have", found=repr(path))
    return path
