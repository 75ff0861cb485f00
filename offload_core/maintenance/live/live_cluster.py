"""A running cluster as topics are offloaded beside its brokers: its records, ledgers and policies, and mirrors.

Attempts of ours are in mirrors: records of the same topics in a store of our own, below `/live`. There everything is
used that offloads topics of ours: attempts with leases, filters that follow transactions, tiers by policies. Policies
of namespaces are the cluster's; those of its brokers, which it keeps in their configuration files, come from ours.
Source: docs/tiering.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import NoReturn

from offload_core.maintenance.live.brokers import Brokers
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.metadata.stores.live_records import (
    LiveRecordStore,
    MirrorStore,
    live_records,
    open_live_store,
)
from offload_core.storage.offloader_stats import OffloaderStats
from offload_core.storage.pulsar_admin import AdminPlugin
from offload_core.storage.tier.registry import make_ledger_store, make_metadata_store
from offload_core.writing.configuration import Configuration, LiveSettings, in_clear
from offload_core.writing.managed_ledger import Environment, open_environment
from offload_core.writing.policy_store import PolicyStore, configured_policies, open_configured_store
from offload_hooks.errors import AccessDeniedError, OptionError
from offload_hooks.ledger_stores import (
    LedgerReader,
    LedgerStatus,
    LedgerStore,
    LedgerStoreDescription,
    LedgerWriter,
    RecoveredLedger,
)

_OF_REQUESTS = ("timeout_s", "attempts")
"""Options of the connection to ZooKeeper that the ledger store has as its own."""
_OF_ADMIN = ("token", "token_file", "ca_bundle")
"""Options of the admin REST that the ledger store has as well: how far an open ledger is written, a broker knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCluster:
    """A running cluster.

    Attributes:
        records: the records that its brokers write.
        mirror: the mirrors of them, and the cluster's ledgers.
        policies: those of the cluster's namespaces.
        brokers: what loads topics anew.
        reload_timeout_s: how long that may take.
        grace_s: how long after that a broker's deletion lag begins.
    """

    records: ManagedLedgerRecords
    mirror: Environment
    policies: PolicyStore
    brokers: Brokers
    reload_timeout_s: float
    grace_s: float


@contextmanager
def open_live_cluster(
    configuration: Configuration, *, stats: OffloaderStats | None = None
) -> Iterator[LiveCluster]:
    """Open the running cluster of a configuration, until the block ends.

    Args:
        stats: counts offloads.

    Raises:
        OptionError: it names none, or no store of our own for the mirrors.
        StoreError, PluginError: the cluster's ZooKeeper, or the store, cannot be opened.
    """
    live = configuration.live
    if live.url is None or live.admin_url is None:
        raise OptionError(
            "which running cluster?",
            expected="its ZooKeeper and its brokers' admin REST",
            hint="Set live.url = zk://host:2181 and live.admin_url = http://broker:8080.",
        )
    with ExitStack() as stack:
        store = stack.enter_context(closing(open_live_store(live.url, in_clear(live.options))))
        own = stack.enter_context(closing(open_configured_store(configuration)))
        admin = make_metadata_store(
            live.admin_url.partition(":")[0], live.admin_url, in_clear(live.admin_options)
        )
        stack.enter_context(closing(admin))
        if not isinstance(admin, AdminPlugin):
            raise OptionError("this is no admin REST", expected="a URL such as http://broker:8080")
        records = LiveRecordStore(store)
        policies = configured_policies(configuration, records)
        hot = _BrokersLedgers(make_ledger_store("bookkeeper", _of_bookkeeper(live)))
        mirror = stack.enter_context(
            open_environment(configuration, MirrorStore(own, records), policies, stats=stats, hot=hot)
        )
        yield LiveCluster(
            records=live_records(store),
            mirror=mirror,
            policies=policies,
            brokers=Brokers(admin.client),
            reload_timeout_s=live.reload_timeout_s,
            grace_s=live.grace_s,
        )


def _of_bookkeeper(live: LiveSettings) -> dict[str, object]:
    login = {
        name if name in _OF_REQUESTS else f"zookeeper_{name}": value
        for name, value in in_clear(live.options).items()
    }
    options = in_clear(live.admin_options)
    admin = {f"admin_{name}": options[name] for name in _OF_ADMIN if name in options}
    return {"url": live.url, "admin_url": live.admin_url, **login, **admin, **in_clear(live.bookkeeper)}


class _BrokersLedgers:
    """The ledgers that a cluster's brokers write, as a hot tier in which nothing is changed."""

    def __init__(self, store: LedgerStore) -> None:
        self._store = store

    def describe(self) -> LedgerStoreDescription:
        return self._store.describe()

    def open(self, ledger_id: int) -> LedgerReader:
        return self._store.open(ledger_id)

    def verify(self, ledger_id: int) -> LedgerStatus:
        return self._store.verify(ledger_id)

    def ledger_ids(self) -> Sequence[int]:
        return self._store.ledger_ids()

    def create(self, custom_metadata: Mapping[str, bytes]) -> LedgerWriter:
        del custom_metadata
        _refuse(None)

    def recover(self, ledger_id: int, accept_loss: bool = False) -> RecoveredLedger:
        del accept_loss
        _refuse(ledger_id)

    def delete(self, ledger_id: int) -> bool:
        _refuse(ledger_id)

    def close(self) -> None:
        self._store.close()


def _refuse(ledger_id: int | None) -> NoReturn:
    raise AccessDeniedError(
        "ledgers of a running cluster are created and deleted by its brokers", ledger_id=ledger_id
    )
