"""The layer `retry` over real drivers: a server that is busy is asked again when it said so, and by the layer alone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from network.fronts import Answer, Front
from stores import new_store

from offload_hooks.errors import StoreUnavailableError


@pytest.fixture
def waits(monkeypatch):
    """The waits, which are not waited."""
    seen: list[float] = []
    monkeypatch.setattr("tenacity.nap.time", SimpleNamespace(sleep=seen.append))
    return seen


class Busy:
    """A server that refuses the next `left` requests."""

    def __init__(self, store):
        self.left = 0
        busy = Answer(status=503, headers={"Retry-After": "7"})
        self.front = Front(store.endpoint, lambda _: busy if self._refuses() else None)

    def _refuses(self):
        self.left -= 1
        return self.left >= 0


@pytest.mark.parametrize("name", ["s3", "gcs", "azure"])
def test_the_time_that_a_server_asks_for_is_waited_between_attempts(name, request, tmp_path, waits):
    store = new_store(name, request.getfixturevalue, tmp_path)
    with store.open(layers=[]) as tier:
        tier.write_index("k", b"0123456789")
    busy = Busy(store)
    with busy.front as front, store.through(front.url).open(layers=["retry:jitter_s=0,attempts=3"]) as tier:
        busy.left = 4 if name == "s3" else 2  # S3 is asked by two clients in each attempt: docs/drivers/s3.md
        assert bytes(tier.read_range("k", 3, 4)) == b"3456"
        assert waits == [7.0, 7.0]
        before, busy.left = len(front.requests), 10
        with pytest.raises(StoreUnavailableError):
            tier.stat("k")
        assert len(front.requests) - before == 3
