"""A view of a tier does what the tier does, and counts it for its topic."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from offload_core.format.codec.object_format import ObjectKey
from offload_core.reading.read_handles.read_memory import ReadMemory
from offload_core.storage.offloader_stats import OffloaderStats
from offload_core.storage.tier import open_store, upload_blocks
from offload_core.storage.tier.watched_tiers import CountedTier
from offload_hooks import ByteRange
from offload_hooks.errors import ObjectExistsError, ObjectNotFoundError

TOPIC = "persistent://acme/n/t"
KEY = ObjectKey(folder="", uuid=UUID(int=7), ledger_id=3, is_index=False)


class Counted:
    """Keeps the calls in order, without how long anything took."""

    def __init__(self):
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name):
        timed = name.startswith("time_")
        return lambda topic, *given: self.calls.append((name, topic, *(() if timed else given)))


@pytest.fixture
def stats():
    return Counted()


def test_what_is_written_and_read_is_counted_once(tmp_path, stats):
    counting: OffloaderStats = stats
    with open_store(str(tmp_path)) as tier:
        view = CountedTier(tier, counting, TOPIC)
        upload_blocks(view, KEY.data_key, [b"abc", b"de"], block_bytes=3, parts_in_flight=1)
        view.write_index(KEY.index_key, b"index")
        assert stats.calls == [("count_offloaded", TOPIC, 3), ("count_offloaded", TOPIC, 2)]
        stats.calls.clear()
        assert bytes(view.read_range(KEY.data_key, 1, 2)) == b"bc"
        assert bytes(view.read_range(KEY.index_key, 0, 5)) == b"index"
        ranges = [ByteRange(key=KEY.data_key, offset=at, length=1) for at in (0, 4)]
        assert [bytes(each) for each in view.read_ranges(ranges)] == [b"a", b"e"]
        assert view.read_ranges([]) == []
        assert view.read_object(KEY.index_key, 100).data == b"index"
        assert view.stat(KEY.data_key).size_bytes == 5
    assert stats.calls == [
        ("time_data_read", TOPIC),
        ("count_read", TOPIC, 2),
        ("time_index_read", TOPIC),
        ("count_read", TOPIC, 5),
        ("time_data_read", TOPIC),
        ("count_read", TOPIC, 2),
        ("time_index_read", TOPIC),
        ("count_read", TOPIC, 5),
    ]


def test_what_fails_is_counted_and_raised(tmp_path, stats):
    with open_store(str(tmp_path)) as tier:
        view = CountedTier(tier, stats, TOPIC)
        tier.write_index("there", b"x")
        for read in (lambda: view.read_range("none", 0, 1), lambda: view.stat("none")):
            with pytest.raises(ObjectNotFoundError):
                read()
        with pytest.raises(ObjectExistsError):
            view.write_index("there", b"y", create_only=True)
    assert [name for name, _ in stats.calls] == ["count_read_error", "count_read_error", "count_write_error"]


def test_views_share_what_is_in_memory_and_close_nothing(tmp_path, stats):
    memory = ReadMemory()
    with open_store(str(tmp_path)) as tier, open_store(str(tmp_path)) as other:
        tokens = {memory.token(each) for each in (tier, CountedTier(tier, stats, TOPIC))}
        assert len(tokens) == 1
        assert memory.token(other) not in tokens
        with CountedTier(tier, stats, TOPIC) as view:
            assert repr(view) == repr(tier)
        tier.write_index("still", b"open")
