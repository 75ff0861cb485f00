"""The estimate of a scan equals the requests that a real S3 service got."""

from __future__ import annotations

from collections import Counter

import pytest
from network.fronts import Front
from stores import new_store
from tiers import put_broker_objects

from offload_core.reading.scan import read_task
from pulsar_offload import explain_scan, scan

pytestmark = pytest.mark.sampled(6)


def kind_of(request):
    if request.method == "HEAD":
        return "head"
    return "list" if "list-type" in request.parameters else request.method.lower()


@pytest.mark.parametrize("isolation", ["uncommitted", "committed"])
def test_an_s3_service_gets_the_requests_that_were_told(versitygw, tmp_path, isolation):
    store = new_store("s3", lambda _: versitygw, tmp_path)
    with store.open() as tier:
        put_broker_objects(tier)
    arguments = {"isolation": isolation, "chunks": "raw", "fail_on_data_loss": False, "task_bytes": 300_000}
    with Front(store.endpoint) as front, store.through(front.url).open_reader() as tier:
        tier.catalogue_cache = False  # else what was told is fewer the second time
        told = explain_scan(tier, **arguments)
        front.requests.clear()
        planned = scan(tier, **arguments)
        for task in planned.tasks:
            for _ in read_task(tier.store, task, planned.options):
                pass
        got = Counter(kind_of(request) for request in front.requests)
        sizes = {each.key: each.size_bytes for each in tier.store.list_objects()}
        answered = sum(_length(request, sizes) for request in front.requests if kind_of(request) == "get")
    assert (got["list"], got["head"]) == (told.total.lists, told.total.heads)
    if isolation == "committed":
        # Of the ends of topics the most is told; what tasks look for around them is not.
        assert told.planning.read_bytes + told.reading.read_bytes < answered <= 1.1 * told.total.read_bytes
    else:
        assert (got["get"], answered) == (told.total.gets, told.total.read_bytes)


def _length(request, sizes):
    if "range" not in request.headers:
        return next(size for key, size in sizes.items() if request.path.endswith(f"/{key}"))
    first, last = request.headers["range"].removeprefix("bytes=").split("-")
    return int(last) - int(first) + 1
