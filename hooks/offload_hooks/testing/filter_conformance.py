# ruff: noqa: D102 (the names of the cases state the promises)
"""The conformance suite of offload filters: what `offload_hooks.filters` promises, as tests that an author subclasses.

    class TestMyFilter(FilterConformance):
        @pytest.fixture
        def make_filter(self):
            return MyFilter

        @pytest.fixture
        def options(self):
            return {"producer": "monitor"}

        @pytest.fixture
        def entries(self):
            return [(a_message, None), (a_heartbeat, "producer monitor")]

See docs/conformance.md.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pytest

from offload_hooks.errors import FormatError, OffloadError, StoreUnavailableError
from offload_hooks.filters import OffloadFilter, SettledTransactions, TopicFilter
from offload_hooks.ledger_stores import EntryBatch
from offload_hooks.testing.content import content
from offload_hooks.testing.plugin_suite import PluginSuiteBase
from offload_hooks.testing.threads import together

MakeFilter = Callable[..., OffloadFilter]
Entries = Sequence[tuple[bytes, str | None]]
"""Payloads, each with the cause for which it is dropped; None if it is kept."""

LEDGER_ID = 7
"""The ledger whose entries are judged; the first of them has the id 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedTopic:
    """A topic whose transactions are settled already; `settled` is None if it never had any."""

    settled: SettledTransactions | None = None
    name: str = "persistent://conformance/filters/judged"

    def settle(self) -> SettledTransactions | None:
        """See `FilteredTopic`."""
        return self.settled


class UnreadableTopic:
    """A topic whose entries cannot be read now."""

    name = "persistent://conformance/filters/unreadable"

    def settle(self) -> SettledTransactions | None:
        """See `FilteredTopic`."""
        raise StoreUnavailableError("the ledger cannot be read now", ledger_id=LEDGER_ID)


def numbers(opened: TopicFilter, first_entry_id: int, payloads: Sequence[bytes]) -> list[int]:
    """The decision on each of some entries; checks its form."""
    view = memoryview(opened.look(LEDGER_ID, EntryBatch.of(first_entry_id, payloads)))
    assert (view.format, view.itemsize, view.ndim) == ("i", 4, 1), "an int32 (format `i`) for each entry"
    found: list[int] = view.tolist()
    assert len(found) == len(payloads), "one decision for each entry"
    assert all(0 <= number <= len(opened.causes) for number in found), "n stands for causes[n - 1]"
    return found


def causes_of(opened: TopicFilter | None, payloads: Sequence[bytes], size: int) -> list[str | None]:
    """The cause for which each entry is dropped, in batches of `size`; None if it is kept."""
    if opened is None:
        return [None] * len(payloads)
    decided: list[str | None] = []
    for first in range(0, len(payloads), size):
        found = numbers(opened, first, payloads[first : first + size])
        decided += [opened.causes[number - 1] if number else None for number in found]
    return decided


def decide(
    make: MakeFilter, options: Mapping[str, str], topic: JudgedTopic, payloads: Sequence[bytes]
) -> list[str | None]:
    """The causes by a filter that is made anew."""
    return causes_of(make(**options).open(topic), payloads, len(payloads))


_IN_ANOTHER_PROCESS = """
import pickle, sys
out, sys.stdout = sys.stdout.buffer, sys.stderr
sys.path[:] = pickle.load(sys.stdin.buffer)
out.write(pickle.dumps(pickle.load(sys.stdin.buffer)()))
"""


class FilterConformance(PluginSuiteBase):
    """Subclass it, with a name that begins with `Test`, and write the fixtures `make_filter`, `entries` and `options`.

    The fixtures `settled` and `malformed`, and the attributes of `PluginSuiteBase`, may be given as well.
    """

    @pytest.fixture
    def make_filter(self) -> MakeFilter:
        """To be written by the author: the class or factory that the entry point names."""
        self.missing("make_filter", "the class that the entry point names")

    @pytest.fixture
    def entries(self) -> Entries:
        """To be written by the author: payloads, each with the cause for which it is dropped; None if it is kept.

        They are the entries 0, 1, 2 … of the ledger 7, all of them before the filter's `stop`. Some are dropped and
        some are kept, unless the filter drops nothing of the topic (`open` gives None).
        """
        self.missing("entries", "payloads, each with the cause for which it is dropped, or None")

    @pytest.fixture
    def settled(self) -> SettledTransactions | None:
        """The topic's transactions as `FilteredTopic.settle` gives them; None, the default, if it never had any."""
        return None

    @pytest.fixture
    def malformed(self) -> Sequence[bytes]:
        """Entries that the filter must refuse; none by default, for a filter to which any bytes are an entry."""
        return ()

    @pytest.fixture
    def judged_topic(self, settled: SettledTransactions | None) -> JudgedTopic:
        """The topic whose entries are judged."""
        return JudgedTopic(settled=settled)

    @pytest.fixture
    def offload_filter(self, make_filter: MakeFilter, options: Mapping[str, str]) -> OffloadFilter:
        """The filter."""
        return self.made(make_filter, options)

    @pytest.fixture
    def opened(self, offload_filter: OffloadFilter, judged_topic: JudgedTopic) -> TopicFilter | None:
        """The filter, opened for the topic."""
        return offload_filter.open(judged_topic)

    def test_the_suite_has_entries_that_are_dropped_and_others_that_are_kept(
        self, opened: TopicFilter | None, entries: Entries
    ) -> None:
        assert entries
        if opened is not None:
            assert {cause is None for _, cause in entries} == {True, False}

    def test_an_opened_filter_has_a_bound_and_causes(self, opened: TopicFilter | None) -> None:
        if opened is None:
            pytest.skip("the filter drops nothing of the topic")
        assert not isinstance(opened.causes, str)
        assert all(isinstance(cause, str) for cause in opened.causes)
        assert isinstance(opened.waits_for, str)
        stop = opened.stop
        if stop is not None:
            ledger_id, entry_id = stop
            assert (type(ledger_id), type(entry_id)) == (int, int), (
                "a position is a ledger id and an entry id"
            )
            assert min(ledger_id, entry_id) >= 0
            assert opened.waits_for, "what waits at `stop` waits for something"

    def test_the_entries_are_before_stop_and_stop_stays(
        self, opened: TopicFilter | None, entries: Entries
    ) -> None:
        if opened is None or opened.stop is None:
            pytest.skip("the filter decides on all positions")
        stop = opened.stop
        assert (LEDGER_ID, len(entries) - 1) < tuple(stop), "give entries before `stop`, or another `settled`"
        causes_of(opened, [payload for payload, _ in entries], len(entries))
        assert opened.stop == stop, "an opened filter is as the topic was; the next one may decide on more"

    def test_each_entry_is_decided_as_its_author_states(
        self, opened: TopicFilter | None, entries: Entries
    ) -> None:
        payloads, causes = zip(*entries, strict=True)
        assert causes_of(opened, payloads, len(payloads)) == list(causes)

    @pytest.mark.parametrize("case_size", [1, 2, 3])
    def test_how_entries_are_read_changes_no_decision(
        self, opened: TopicFilter | None, entries: Entries, case_size: int
    ) -> None:
        payloads, causes = zip(*entries, strict=True)
        assert causes_of(opened, payloads, case_size) == list(causes)

    def test_the_number_of_a_call_changes_no_decision(
        self, opened: TopicFilter | None, entries: Entries
    ) -> None:
        payloads, causes = zip(*entries, strict=True)
        for _ in range(50):
            assert causes_of(opened, payloads, 1) == list(causes)

    def test_no_entries_get_no_decision(self, opened: TopicFilter | None) -> None:
        if opened is not None:
            assert numbers(opened, 0, []) == []

    def test_an_offload_that_is_made_again_decides_the_same(
        self, offload_filter: OffloadFilter, judged_topic: JudgedTopic, entries: Entries
    ) -> None:
        payloads, causes = zip(*entries, strict=True)
        opened = [offload_filter.open(judged_topic) for _ in range(2)]
        for each in (*opened, *opened):
            assert causes_of(each, payloads, len(payloads)) == list(causes)

    def test_a_filter_that_is_made_anew_decides_the_same(
        self, make_filter: MakeFilter, options: Mapping[str, str], judged_topic: JudgedTopic, entries: Entries
    ) -> None:
        payloads, causes = zip(*entries, strict=True)
        for _ in range(2):
            assert decide(make_filter, options, judged_topic, payloads) == list(causes)

    def test_another_process_decides_the_same(
        self, make_filter: MakeFilter, options: Mapping[str, str], judged_topic: JudgedTopic, entries: Entries
    ) -> None:
        payloads, causes = zip(*entries, strict=True)
        try:
            work = pickle.dumps(partial(decide, make_filter, options, judged_topic, payloads))
        except Exception as error:  # whatever the author's fixture gives
            pytest.fail(
                f"make_filter must be a class that another process can import: {error}", pytrace=False
            )
        seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"  # another order of sets than here
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-c", _IN_ANOTHER_PROCESS],
            input=pickle.dumps(sys.path) + work,
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            timeout=self.deadline_s,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        assert pickle.loads(done.stdout) == list(causes)  # noqa: S301

    def test_many_threads_at_once_decide_the_same(
        self, offload_filter: OffloadFilter, judged_topic: JudgedTopic, entries: Entries
    ) -> None:
        payloads, causes = zip(*entries, strict=True)

        def work() -> None:
            for size in (1, 2, len(payloads)):
                assert causes_of(offload_filter.open(judged_topic), payloads, size) == list(causes)

        together([work] * self.racers, self.deadline_s)

    def test_a_decision_and_its_causes_stay_as_they_are(
        self, opened: TopicFilter | None, entries: Entries
    ) -> None:
        if opened is None:
            pytest.skip("the filter drops nothing of the topic")
        payloads = [payload for payload, _ in entries]
        answer = opened.look(LEDGER_ID, EntryBatch.of(0, payloads))
        before, causes = bytes(answer), list(opened.causes)
        causes_of(opened, payloads[::-1], len(payloads))
        causes_of(opened, payloads, 1)
        assert bytes(answer) == before
        assert list(opened.causes[: len(causes)]) == causes, "causes grow, and none is replaced"

    def test_entries_are_not_changed(self, opened: TopicFilter | None, entries: Entries) -> None:
        if opened is None:
            pytest.skip("the filter drops nothing of the topic")
        batch = EntryBatch.of(0, [payload for payload, _ in entries])
        data = bytearray(batch.data)
        opened.look(LEDGER_ID, EntryBatch(0, memoryview(data), batch.offsets))
        assert data == batch.data

    def test_any_bytes_are_decided_on_or_refused_with_their_place(
        self, offload_filter: OffloadFilter, judged_topic: JudgedTopic, entries: Entries
    ) -> None:
        for payload in _damaged([payload for payload, _ in entries]):
            opened = offload_filter.open(judged_topic)
            if opened is None:
                pytest.skip("the filter drops nothing of the topic")
            try:
                numbers(opened, 0, [payload])
            except OffloadError as error:
                self._judge_place(error, 0)

    def test_a_malformed_entry_is_refused_with_its_place(
        self,
        offload_filter: OffloadFilter,
        judged_topic: JudgedTopic,
        entries: Entries,
        malformed: Sequence[bytes],
    ) -> None:
        if not malformed:
            pytest.skip("the suite was given no malformed entries")
        sound = [payload for payload, _ in entries]
        for payload in malformed:
            opened = offload_filter.open(judged_topic)
            assert opened is not None
            with self.refuses(FormatError) as refusal:
                opened.look(LEDGER_ID, EntryBatch.of(0, [*sound, payload]))
            self._judge_place(refusal.error, len(sound))

    def test_an_error_of_the_topic_is_passed_on(self, offload_filter: OffloadFilter) -> None:
        try:
            offload_filter.open(UnreadableTopic())
        except OffloadError as error:
            self.judge_error(error, StoreUnavailableError)

    def _judge_place(self, error: OffloadError, entry_id: int) -> None:
        self.judge_error(error, OffloadError)
        assert error.entry_id == entry_id, "an error must name the entry"
        assert error.ledger_id in (None, LEDGER_ID)


def _damaged(payloads: Sequence[bytes]) -> list[bytes]:
    """No entries at all, and these ones cut and with bits flipped, at some 40 places each."""
    damaged = [b"", b"\0", b"\xff" * 100, content(1000), b"not an entry"]
    for payload in dict.fromkeys(payloads):
        for place in range(0, len(payload), max(1, len(payload) // 40)):
            damaged += [
                payload[:place],
                payload[:place] + bytes([payload[place] ^ 0xFF]) + payload[place + 1 :],
            ]
    return damaged
