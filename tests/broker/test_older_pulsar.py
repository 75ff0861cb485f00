"""Running clusters of Pulsar 3.3: their hot ledgers are read, their topics offloaded beside them, as of 4.0."""

from __future__ import annotations

import pytest
from live.clients import TransactionalPulsar
from required import need
from servers import install
from servers.broker import Broker
from servers.toolchains import ToolchainMissing
from test_live_ledgers import store as store
from test_live_ledgers import test_an_open_ledger_is_read_as_far_as_its_broker_has_confirmed as test_open
from test_live_ledgers import test_what_is_read_hot_is_what_the_broker_offloads as test_hot_entries
from test_live_offloads import cluster as cluster
from test_live_offloads import settings as settings
from test_live_offloads import test_a_broker_offloads_and_what_it_wrote_is_verified as test_by_broker
from test_live_offloads import (
    test_a_broker_reads_the_mapfiles_that_the_driver_filesystem_wrote as test_mapfiles,
)
from test_live_offloads import test_a_topic_is_offloaded_while_it_is_written as test_offloaded
from test_live_offloads import test_clients_and_scans_get_the_same_before_and_after as test_the_same
from test_live_offloads import (
    test_copies_are_moved_to_another_bucket_while_the_topic_is_written as test_moved,
)
from test_live_offloads import (
    test_the_transaction_filter_leaves_tombstones_that_brokers_read as test_tombstones,
)
from test_live_scans import (
    test_a_stream_has_each_message_once_while_the_broker_rolls_offloads_and_deletes as test_stream,
)
from test_live_scans import (
    test_a_topic_is_read_whole_before_while_and_after_it_is_offloaded as test_read_whole,
)
from test_live_scans import test_an_open_transaction_ends_a_topic_as_for_a_consumer as test_transactions

pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("older-pulsar")]

TESTS = (
    *(test_open, test_hot_entries, test_by_broker, test_mapfiles, test_offloaded, test_the_same, test_moved),
    *(test_tombstones, test_stream, test_read_whole, test_transactions),
)
"""What runs here, too."""

_ROOT = "pulsar-3"


@pytest.fixture(scope="session")
def zookeeper_broker(versitygw, zookeeper, tmp_path_factory):
    """A broker of the older version."""
    try:
        install.broker(install.OLDER_PULSAR)
    except ToolchainMissing as missing:
        need(missing.part, False, missing.how)
        raise
    broker = Broker(
        versitygw,
        transactions=True,
        metadata_url=zookeeper.make_root(f"/{_ROOT}"),
        version=install.OLDER_PULSAR,
    )
    with broker.start(tmp_path_factory.mktemp("older")) as running:
        yield running


@pytest.fixture(scope="session")
def live_by_zookeeper(zookeeper_broker, versitygw, oracle):
    with TransactionalPulsar.connected(zookeeper_broker, versitygw, oracle=oracle) as live:
        yield live


@pytest.fixture(scope="session")
def records(zookeeper):
    return f"{zookeeper.endpoint}/{_ROOT}"


@pytest.fixture(scope="module")
def live(live_by_zookeeper):
    return live_by_zookeeper


@pytest.fixture(scope="module")
def hot(records, zookeeper_broker):
    return "bookkeeper", {"url": records, "admin_url": zookeeper_broker.endpoint}
