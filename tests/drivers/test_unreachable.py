"""A wrong address is reported at the first attempt, with host, port and cause."""

import time

import pytest
from servers.process import free_port

from offload_core.storage.tier import open_store
from offload_hooks.errors import StoreUnreachableError

NO_NAME = "no-such-host.invalid"
OPTIONS = {
    "s3": {"bucket": "b", "access_key_id": "a", "secret_access_key": "geheim"},
    "gcs": {"bucket": "b", "anonymous": True},
    "azure": {"container": "con", "account_name": "account", "account_key": "Z2VoZWlt"},
}
REQUESTS = {
    "list": lambda tier: list(tier.list_objects()),
    "stat": lambda tier: tier.stat("k"),
    "read": lambda tier: tier.read_range("k", 0, 1),
    "write": lambda tier: tier.write_index("k", b"x"),
}


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
@pytest.mark.parametrize("driver", OPTIONS)
def test_a_port_where_nothing_listens_is_reported_at_once(driver, request_):
    port = free_port()
    with open_store(driver, endpoint_url=f"http://127.0.0.1:{port}", **OPTIONS[driver]) as tier:
        began = time.monotonic()
        with pytest.raises(StoreUnreachableError, match=f"nothing answers at 127.0.0.1:{port}") as caught:
            request_(tier)
    assert caught.value.found == "Connection refused"
    assert time.monotonic() - began < 5
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_a_name_node_where_nothing_listens_is_reported_at_once(request_, monkeypatch):
    monkeypatch.delenv("HADOOP_USER_NAME", raising=False)  # another test's user
    port = free_port()
    with open_store(f"hdfs://127.0.0.1:{port}/tier") as tier:
        began = time.monotonic()
        with pytest.raises(StoreUnreachableError, match=f"nothing answers at 127.0.0.1:{port}") as caught:
            request_(tier)
    assert caught.value.found == "Connection refused"
    assert time.monotonic() - began < 10


def test_a_name_node_whose_name_is_not_known_is_reported_at_once(monkeypatch):
    monkeypatch.delenv("HADOOP_USER_NAME", raising=False)
    with open_store(f"hdfs://{NO_NAME}:8020/tier") as tier:
        began = time.monotonic()
        with pytest.raises(StoreUnreachableError, match=f"nothing answers at {NO_NAME}:8020"):
            tier.stat("k")
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("driver", OPTIONS)
def test_a_host_that_is_not_known_is_reported_at_once(driver):
    with open_store(driver, endpoint_url=f"http://{NO_NAME}:9000", **OPTIONS[driver]) as tier:
        began = time.monotonic()
        with pytest.raises(StoreUnreachableError, match=f"nothing answers at {NO_NAME}:9000"):
            tier.stat("k")
    assert time.monotonic() - began < 10
