"""Whoever has a topic's record can have its owner complete the segment that is written."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from managed_ledgers import NAME, environment_in

from offload_core.metadata.records import ManagedLedgerInfo
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.writing.managed_ledger import open_managed_ledger
from offload_core.writing.managed_ledger.owned_record import OWNER_PROPERTY, with_property
from offload_core.writing.managed_ledger.streaming.completion_requests import (
    request_completion,
    requests_of,
    with_request,
    without_requests,
)
from offload_hooks.errors import OptionError, StoreTimeoutError, UnknownTopicError


@pytest.fixture
def records(tmp_path: Path) -> ManagedLedgerRecords:
    """Of a topic that somebody has open."""
    found = environment_in(tmp_path).records
    found.write(NAME, with_property(ManagedLedgerInfo(), OWNER_PROPERTY, "0" * 32), None)
    return found


def test_marks_come_and_go_by_themselves() -> None:
    info = ManagedLedgerInfo()
    both = with_request(with_request(info, "a"), "b")
    assert requests_of(both) == ("a", "b")
    assert with_request(both, "a") == both
    assert requests_of(without_requests(both, ["a"])) == ("b",)
    assert without_requests(both, ["a", "b", "c"]) == info


def test_a_request_waits_until_its_own_mark_is_gone(records: ManagedLedgerRecords) -> None:
    records.update(NAME, partial(with_request, mark="another's"))
    looks = []

    def answer(_: float) -> None:
        looks.append(requests_of(records.read(NAME).info))
        assert len(looks[-1]) == 3 - len(looks)
        records.update(NAME, partial(without_requests, marks=[looks[-1][0]]))

    request_completion(records, NAME, wait=answer)
    assert len(looks) == 2


def test_a_request_that_nobody_answers_is_withdrawn(records: ManagedLedgerRecords) -> None:
    with pytest.raises(StoreTimeoutError, match=NAME):
        request_completion(records, NAME, timeout_s=0.3)
    assert requests_of(records.read(NAME).info) == ()


def test_a_topic_that_nobody_has_open_is_told_at_once(tmp_path: Path) -> None:
    environment = environment_in(tmp_path)
    open_managed_ledger(environment, NAME).close()
    with pytest.raises(OptionError, match="nobody has"):
        request_completion(environment.records, NAME)
    assert requests_of(environment.records.read(NAME).info) == ()


def test_a_topic_that_its_owner_closes_meanwhile_is_told(tmp_path: Path) -> None:
    environment = environment_in(tmp_path)
    owner = open_managed_ledger(environment, NAME)
    with pytest.raises(OptionError, match="nobody has"):
        request_completion(environment.records, NAME, wait=lambda _: owner.close())
    assert requests_of(environment.records.read(NAME).info) == ()


def test_a_topic_that_is_not_there_or_goes_is_told(records: ManagedLedgerRecords) -> None:
    with pytest.raises(UnknownTopicError):
        request_completion(records, "acme/cold/persistent/other")

    def delete(_: float) -> None:
        records.delete(NAME, records.read(NAME))

    with pytest.raises(UnknownTopicError, match="meanwhile"):
        request_completion(records, NAME, wait=delete)
