"""A filter that fails, or decides what it may not, fails the offload and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from scenes.filters import FilteredTopic, PlainFilter, every_ledger

from offload_core.metadata.records import EntryPosition
from offload_core.writing.managed_ledger import keep_up
from offload_hooks.errors import (
    BrokenPluginError,
    FormatError,
    OffloadError,
    StoreUnavailableError,
)


class Failing(PlainFilter):
    """Fails in one of its calls."""

    def __init__(self, where: str, error: Exception) -> None:
        super().__init__(lambda _: False)
        self.where, self.error = where, error

    def fail(self, where: str) -> None:
        if where == self.where:
            raise self.error

    def open(self, topic: object) -> PlainFilter:
        self.fail("open")
        return super().open(topic)

    def look(self, ledger_id, entries):
        self.fail("look")
        return super().look(ledger_id, entries)


@pytest.mark.parametrize("where", ["open", "look"])
@pytest.mark.parametrize("error", [ValueError("bad"), StoreUnavailableError("away"), FormatError("odd")])
def test_whatever_a_filter_raises_fails_the_offload_and_nothing_else(
    tmp_path: Path, where: str, error: Exception
) -> None:
    topic = FilteredTopic(tmp_path, filter=Failing(where, error))
    topic.do("m", "|")
    expected = type(error) if isinstance(error, OffloadError) else BrokenPluginError
    with pytest.raises(expected) as caught:
        topic.offload()
    (ledger,) = topic.ledgers
    assert isinstance(caught.value, OffloadError)
    assert caught.value.ledger_id == ledger.ledger_id
    assert ledger.context is None
    assert list(topic.tier.list_objects()) == []
    assert topic.topic.topic.offload_status.error is caught.value
    done = keep_up(topic.topic, every_ledger(), now_ms=1000)
    assert list(done.failures) == ["offload"]
    assert len(topic.hot_entries()) == 1


@pytest.mark.parametrize(
    "broken",
    [
        PlainFilter(lambda _: 2),
        PlainFilter(lambda _: -1),
        PlainFilter(lambda _: 0, stop=("a", 1)),  # type: ignore[arg-type]
        PlainFilter(lambda _: 0, stop=(1, 2, 3)),  # type: ignore[arg-type]
    ],
)
def test_a_filter_that_gives_no_decision_is_broken(tmp_path: Path, broken: PlainFilter) -> None:
    topic = FilteredTopic(tmp_path, filter=broken)
    topic.do("m", "|")
    with pytest.raises(BrokenPluginError, match="'transactions'"):
        topic.offload()
    assert topic.ledgers[0].context is None


def test_an_entry_that_is_not_pulsars_is_refused_with_its_place(tmp_path: Path) -> None:
    topic = FilteredTopic(tmp_path)
    topic.do("m")
    topic.topic.topic.add_entry(b"not of Pulsar")
    topic.do("|")
    with pytest.raises(FormatError) as caught:
        topic.offload()
    assert (caught.value.ledger_id, caught.value.entry_id) == (topic.ledgers[0].ledger_id, 1)


def test_what_a_third_party_drops_is_left_out_and_its_bound_is_kept(tmp_path: Path) -> None:
    topic = FilteredTopic(tmp_path)
    topic.do("m", "m", "m", "|", "m", "|")
    unwanted = topic.hot_entries()[1][1]
    _, second = topic.ledgers
    topic.filter = PlainFilter(lambda payload: payload == unwanted, (second.ledger_id, 0), "a sign")
    assert topic.offload() == EntryPosition(second.ledger_id, 0)
    assert list(topic.cold(topic.ledgers[0])) == [0, 2]
    assert topic.topic.topic.offload_status.waiting == {second.ledger_id: "waits for a sign"}
