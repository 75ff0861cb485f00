"""Ledgers as ZooKeeper describes them: one by its id, and the ids of all. Nothing is written."""

from __future__ import annotations

from dataclasses import dataclass

from offload_core.format.codec.bookkeeper.ledger_nodes import (
    is_above_ledgers,
    ledger_id_of,
    ledger_node,
    long_ledger_node,
    parse_ledger_node,
)
from offload_core.format.codec.ledger_metadata import LedgerMetadata
from offload_core.storage.zookeeper_connection import ZooKeeperConnection
from offload_hooks.errors import UnknownLedgerError, UnsupportedVersionError, placed

_LAYOUTS = ("HierarchicalLedgerManagerFactory", "LongHierarchicalLedgerManagerFactory")


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedLedger:
    """A ledger's description, and when it was created, in ms since 1970, UTC."""

    metadata: LedgerMetadata
    created_at_ms: int


class DescribedLedgers:
    """The ledgers of one cluster.

    Args:
        root: the path of all ledgers, `/ledgers` below the chroot by default.
    """

    def __init__(self, zookeeper: ZooKeeperConnection, root: str) -> None:
        self._zookeeper = zookeeper
        self._root = root
        self._layout_is_known = False

    @property
    def place(self) -> str:
        """The URL of the root."""
        return f"{self._zookeeper.place}{self._root}"

    def get(self, ledger_id: int) -> DescribedLedger:
        """The description as it is now.

        Raises:
            UnknownLedgerError: there is no such ledger (any more).
            MetadataError, UnsupportedVersionError: the node cannot be read.
            StoreError: see `ZooKeeperConnection.ask`.
        """
        if ledger_id >= 0:
            for node in dict.fromkeys((ledger_node(ledger_id), long_ledger_node(ledger_id))):
                found = self._zookeeper.read(f"{self._root}{node}")
                if found is None:
                    continue
                value, stat = found
                with placed(key=f"{self.place}{node}", ledger_id=ledger_id):
                    metadata = parse_ledger_node(value or b"")
                return DescribedLedger(metadata=metadata, created_at_ms=metadata.ctime_ms or stat.ctime)
            self._check_layout()
        raise UnknownLedgerError("BookKeeper has no such ledger", key=self.place, ledger_id=ledger_id)

    def ids(self) -> list[int]:
        """The ids of all ledgers, ascending; one request for each node above ledgers. Errors as `get`."""
        self._check_layout()
        found: list[int] = []
        above: list[tuple[str, ...]] = [()]
        while above:
            names = above.pop()
            for name in self._zookeeper.children("/".join((self._root, *names))):
                ledger_id = ledger_id_of((*names, name))
                if ledger_id is not None:
                    found.append(ledger_id)
                elif is_above_ledgers((*names, name)):
                    above.append((*names, name))
        return sorted(set(found))

    def _check_layout(self) -> None:
        """Refuse a cluster that keeps its ledgers in another layout; Pulsar's own says nothing."""
        if self._layout_is_known:
            return
        node = f"{self._root}/LAYOUT"
        found = self._zookeeper.read(node)
        text = (found[0] or b"").decode(errors="replace") if found is not None else ""
        if text and not any(f".{layout}:" in text for layout in _LAYOUTS):
            raise UnsupportedVersionError(
                "BookKeeper keeps its ledgers in a layout that is not read",
                key=f"{self._zookeeper.place}{node}",
                expected=" or ".join(_LAYOUTS),
                found=ascii(text[:200]),
            )
        self._layout_is_known = True
