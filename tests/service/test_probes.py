"""The service's probes, and its end as a container's first process: what Docker and Kubernetes ask of it."""

import asyncio
import os
import shutil
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from prometheus_client import CollectorRegistry
from required import need
from servers.zookeeper import ZooKeeper
from service import Service, TenantService, offloading, owner
from waiting import wait_for

from offload_core.interfaces.service.app import make_app
from offload_core.interfaces.service.served_topics import RecordedTopics
from offload_core.metadata.policies import parse_policies
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.writing.configuration import ServiceSettings
from offload_core.writing.managed_ledger import open_managed_ledger, policies_by_name
from offload_core.writing.policy_store import PolicyStore
from offload_hooks.testing import MemoryMetadataStore

pytestmark = pytest.mark.long

READY = ("/readyz", "/admin/v2/brokers/health")


def statuses(service):
    return [service.ask("GET", path).status for path in ("/healthz", *READY)]


def test_probes_need_no_token_and_answer_nothing_else(tmp_path):
    with TenantService(tmp_path) as service:
        for path in ("/healthz", *READY):
            answer = service.ask("GET", path)
            assert (answer.status, answer.text) == (200, "ok")
        assert service.ask("GET", "/metrics").status == 401


def test_a_service_whose_database_is_damaged_is_alive_and_not_ready(tmp_path):
    with Service(tmp_path) as service:
        database = Path(tmp_path, "metadata.db")
        wait_for(lambda: statuses(service) == [200, 200, 200])
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("DROP TABLE records")
        wait_for(lambda: statuses(service) == [200, 503, 503])
        answer = service.ask("GET", "/readyz")
        assert answer.json == {"reason": "the metadata store does not answer"}, "no place, no cause"
        assert str(database) in [line["error"] for line in service.log if line["event"] == "not ready"][-1]


@pytest.mark.server
def test_a_service_without_its_zookeeper_is_not_ready_until_that_is_back(start_server, tmp_path):
    zookeeper = start_server(ZooKeeper())
    with Service(tmp_path, metadata=zookeeper.make_root("/offload")) as service:
        wait_for(lambda: statuses(service) == [200, 200, 200])
        zookeeper.stop()
        wait_for(lambda: statuses(service) == [200, 503, 503])
        began = time.monotonic()
        assert statuses(service) == [200, 503, 503]
        assert time.monotonic() - began < 5
        zookeeper.restart()
        wait_for(lambda: statuses(service) == [200, 200, 200])


def test_however_many_probes_there_are_the_store_is_asked_once_a_second():
    asked = []

    class Counting(MemoryMetadataStore):
        def get(self, path):
            asked.append(path)
            return super().get(path)

    store = Counting()
    policies = PolicyStore(store, broker=parse_policies({}))
    topics = RecordedTopics(ManagedLedgerRecords(store), None, policies_by_name(policies))
    service = ServiceSettings()
    app = make_app(store, policies, topics, tokens=None, registry=CollectorRegistry(), service=service)
    began = time.monotonic()

    async def probe():
        sent = []
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/readyz",
            "raw_path": b"/readyz",
            "query_string": b"",
        }
        scope |= {"headers": [(b"host", b"localhost")], "root_path": ""}

        async def send(message):
            sent.append(message)

        await app(scope, None, send)
        return sent[0]["status"]

    async def probes():
        return [await probe() for _ in range(50)]

    assert asyncio.run(probes()) == [200] * 50
    assert len(asked) <= 1 + int(time.monotonic() - began)


def test_the_first_process_of_a_container_ends_in_its_time(tmp_path):
    """The kernel has such a process ignore signals that it has no handler for, also its own."""
    isolated = ("unshare", "--user", "--map-root-user", "--pid", "--fork")
    works = shutil.which("unshare") is not None and os.spawnvp(os.P_WAIT, "unshare", [*isolated, "true"]) == 0
    need("unshare", works, "allow namespaces of users and processes")
    settings = offloading(
        tmp_path,
        service="upkeep_interval_s = 0.1\nstop_timeout_s = 2",
        policies="threshold_in_bytes = 0\nrate_limit_in_bytes_per_second = 1000",
    )
    with (
        Service(tmp_path, settings, within=isolated) as service,
        owner(service.metadata, tmp_path) as environment,
        open_managed_ledger(environment, "acme/n/persistent/orders") as topic,
    ):
        topic.add_entries([os.urandom(1 << 19)] * 4)  # 2,000 s at this rate
        topic.roll()
        path = "/admin/v2/persistent/acme/n/orders/offload"
        wait_for(lambda: service.ask("GET", path).json["status"] == "RUNNING")
        (first,) = psutil.Process(service.pid).children()
        began = time.monotonic()
        first.send_signal(signal.SIGTERM)
        wait_for(lambda: not first.is_running() or first.status() == psutil.STATUS_ZOMBIE)
        assert time.monotonic() - began < 8
