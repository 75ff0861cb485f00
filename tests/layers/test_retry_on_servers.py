"""The layer `retry` over real drivers: a server that is busy is asked again when it said so, and by the layer alone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from network.fronts import Answer, Front
from stores import new_store

from offload_hooks.errors import StoreUnavailableError


@pytest.mark.parametrize("name", ["s3", "gcs", "azure"])
def test_the_time_that_a_server_asks_for_is_waited_between_attempts(name, request, tmp_path, monkeypatch):
    waits = []  # which are not waited
    monkeypatch.setattr("tenacity.nap.time", SimpleNamespace(sleep=waits.append))
    store = new_store(name, request.getfixturevalue, tmp_path)
    with store.open(layers=[]) as tier:
        tier.write_index("k", b"0123456789")
    # S3 is asked by two clients in each attempt: docs/drivers/s3.md
    refusals = [Answer(status=503, headers={"Retry-After": "7"})] * (4 if name == "s3" else 2)
    front = Front(store.endpoint, lambda _: refusals.pop() if refusals else None)
    with front, store.through(front.url).open(layers=["retry:jitter_s=0,attempts=3"]) as tier:
        assert bytes(tier.read_range("k", 3, 4)) == b"3456"
        assert waits == [7.0, 7.0]
        before = len(front.requests)
        refusals += [Answer(status=503)] * 10
        with pytest.raises(StoreUnavailableError):
            tier.stat("k")
        assert len(front.requests) - before == 3
