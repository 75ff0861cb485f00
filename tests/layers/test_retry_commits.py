"""A commit whose outcome is unknown: settled by reading back where that is sure, else an error that says so."""

from __future__ import annotations

import pytest
from layered import layer, stack

from offload_hooks import hookimpl
from offload_hooks.errors import (
    AccessDeniedError,
    ObjectExistsError,
    StoreTimeoutError,
    StoreUnavailableError,
    UploadError,
)
from offload_hooks.testing import FaultLayer, FaultPlan, MemoryDriver
from offload_layers.retry import MARKER, RetryLayer

AT_ONCE = {"first_wait_s": 0, "jitter_s": 0}
NOT_KNOWN = "took effect is not known"
METADATA = {"role": "data"}


@pytest.fixture
def driver():
    return MemoryDriver()


class Commits:
    """Below the retry layer; at each commit, or create-only index, a test may do something before and after it."""

    def __init__(self, rest, *steps):
        self._rest, self._steps = rest, list(steps)

    @hookimpl
    def commit_data(self, upload, receipts, create_only):
        return self._step(
            lambda: self._rest.commit_data(upload=upload, receipts=receipts, create_only=create_only)
        )

    @hookimpl
    def write_index(self, key, data, content_type, user_metadata, create_only):
        return self._step(
            lambda: self._rest.write_index(
                key=key,
                data=data,
                content_type=content_type,
                user_metadata=user_metadata,
                create_only=create_only,
            )
        )

    def _step(self, act):
        return self._steps.pop(0)(act) if self._steps else act()


def with_steps(driver, *steps, **options):
    return stack(
        driver, layer(RetryLayer, **{**AT_ONCE, **options}), layer(lambda rest: Commits(rest, *steps))
    )


def lost_answer(act):
    act()
    raise StoreTimeoutError("no answer in time")


def lost_call(act):
    raise StoreTimeoutError("no answer in time")


def denied(act):
    raise AccessDeniedError("the token expired", hint="Get a new one.")


def begun(tier, key="k"):
    upload = tier.begin_data(key, user_metadata=METADATA)
    return upload, [tier.write_block(upload, 1, 0, b"ours!")]


def stored(driver, key="k"):
    return driver.tier.objects[key].data


def somebody_stores(driver, data=b"other", user_metadata=METADATA):
    driver.write_index("k", data, "application/octet-stream", user_metadata, False)


# --- data objects ------------------------------------------------------------------------------


@pytest.mark.parametrize("create_only", [False, True])
def test_a_commit_whose_answer_was_lost_is_recognised(driver, create_only):
    tier = with_steps(driver, lost_answer)
    stat = tier.commit_data(*begun(tier), create_only=create_only)
    assert (stat.key, stat.size_bytes, stat.user_metadata) == ("k", 5, METADATA)
    assert stored(driver) == b"ours!"


@pytest.mark.parametrize("create_only", [False, True])
def test_so_it_is_when_no_attempt_was_answered(driver, create_only):
    tier = with_steps(driver, lost_answer, lost_call, lost_call, attempts=3)
    assert tier.commit_data(*begun(tier), create_only=create_only).size_bytes == 5


def test_a_commit_that_was_lost_on_its_way_is_made_again(driver):
    tier = with_steps(driver, lost_call, lost_call)
    assert tier.commit_data(*begun(tier), create_only=True).size_bytes == 5
    assert stored(driver) == b"ours!"


def test_an_object_that_stood_there_before_is_no_success(driver):
    somebody_stores(driver)
    tier = with_steps(driver, lost_call)
    with pytest.raises(ObjectExistsError):
        tier.commit_data(*begun(tier), create_only=True)
    assert stored(driver) == b"other"


def test_another_writers_object_is_no_success_though_it_looks_the_same(driver):
    def outrun(act):
        somebody_stores(driver, b"ours!")
        raise StoreTimeoutError("no answer in time")

    tier = with_steps(driver, outrun)
    with pytest.raises(ObjectExistsError):
        tier.commit_data(*begun(tier), create_only=True)


def test_two_writers_of_one_key_through_retries_have_one_winner(driver):
    first, second = with_steps(driver, lost_answer), with_steps(driver, lost_call)
    ours, theirs = begun(first), begun(second)
    assert first.commit_data(*ours, create_only=True).size_bytes == 5
    with pytest.raises(ObjectExistsError):
        second.commit_data(*theirs, create_only=True)


def test_an_upload_that_somebody_dropped_meanwhile_leaves_the_outcome_unknown(driver):
    def dropped(act):
        for upload in list(driver.tier.uploads):
            driver.abort_data(upload)
        raise StoreTimeoutError("no answer in time")

    tier = with_steps(driver, dropped)
    with pytest.raises(StoreTimeoutError, match=NOT_KNOWN) as caught:
        tier.commit_data(*begun(tier))
    assert isinstance(caught.value.__cause__, UploadError)


@pytest.mark.parametrize(("data", "with_our_mark"), [(b"our", True), (b"other", False)])
def test_an_object_that_replaced_ours_leaves_the_outcome_unknown(driver, data, with_our_mark):
    def replaced(act):
        act()
        somebody_stores(driver, data, driver.stat("k").user_metadata if with_our_mark else METADATA)
        raise StoreTimeoutError("no answer in time")

    tier = with_steps(driver, replaced)
    with pytest.raises(StoreTimeoutError, match=NOT_KNOWN):
        tier.commit_data(*begun(tier))


def test_attempts_that_were_all_lost_leave_the_outcome_unknown(driver):
    tier = with_steps(driver, lost_call, lost_call, attempts=2)
    with pytest.raises(StoreTimeoutError, match=NOT_KNOWN) as caught:
        tier.commit_data(*begun(tier))
    assert caught.value.__cause__ is None


def test_an_error_of_another_kind_after_a_lost_answer_is_raised_with_the_hint(driver):
    tier = with_steps(driver, lost_call, denied)
    with pytest.raises(AccessDeniedError, match=f"Get a new one. .*{NOT_KNOWN}"):
        tier.commit_data(*begun(tier))


def test_but_it_is_a_success_if_the_object_says_so(driver):
    tier = with_steps(driver, lost_answer, denied)
    assert tier.commit_data(*begun(tier)).size_bytes == 5


def test_a_look_that_fails_leaves_the_outcome_unknown(driver):
    plan = FaultPlan.parse("fail-before stat 100%")
    tier = stack(
        driver,
        layer(RetryLayer, attempts=3, **AT_ONCE),
        layer(lambda rest: Commits(rest, lost_answer)),
        layer(FaultLayer, plan=plan),
    )
    with pytest.raises(StoreTimeoutError, match=NOT_KNOWN):
        tier.commit_data(*begun(tier))


def test_without_a_lost_answer_the_errors_are_the_stores(driver):
    tier = with_steps(driver)
    upload, receipts = begun(tier)
    tier.abort_data(upload)
    with pytest.raises(UploadError) as caught:
        tier.commit_data(upload, receipts)
    assert NOT_KNOWN not in str(caught.value)


def test_an_upload_that_was_begun_elsewhere_cannot_be_recognised(driver):
    upload, receipts = begun(with_steps(driver))
    with pytest.raises(StoreTimeoutError, match=NOT_KNOWN):
        with_steps(driver, lost_answer).commit_data(upload, receipts, create_only=True)
    assert stored(driver) == b"ours!"


# --- indexes -----------------------------------------------------------------------------------


def test_a_create_only_index_whose_answer_was_lost_is_recognised(driver):
    tier = with_steps(driver, lost_answer)
    stat = tier.write_index("k", b"ours!", user_metadata=METADATA, create_only=True)
    assert (stat.size_bytes, stat.user_metadata) == (5, METADATA)


@pytest.mark.parametrize("data", [b"other", b"ours!"])
def test_another_writers_index_is_no_success(driver, data):
    def outrun(act):
        somebody_stores(driver, data)
        raise StoreUnavailableError("the connection was lost")

    with pytest.raises(ObjectExistsError):
        with_steps(driver, outrun).write_index("k", b"ours!", user_metadata=METADATA, create_only=True)


def test_an_index_that_may_replace_is_written_again(driver):
    tier = with_steps(driver, lost_answer, lost_call)
    assert tier.write_index("k", b"ours!", user_metadata=METADATA).user_metadata == METADATA
    assert driver.stat("k").user_metadata == METADATA


# --- the mark ----------------------------------------------------------------------------------


def test_the_mark_is_in_the_store_and_not_in_stats(driver):
    tier = with_steps(driver)
    assert tier.commit_data(*begun(tier)).user_metadata == METADATA
    assert tier.stat("k").user_metadata == METADATA
    assert set(driver.stat("k").user_metadata) == {"role", MARKER}


def test_every_object_has_a_mark_of_its_own(driver):
    tier = with_steps(driver)
    for key in ("a", "b"):
        tier.commit_data(*begun(tier, key))
        tier.write_index(f"{key}-index", b"x", user_metadata=driver.stat(key).user_metadata, create_only=True)
    marks = {found.stat.user_metadata[MARKER] for found in driver.tier.objects.values()}
    assert len(marks) == 4


def test_without_marks_nothing_is_added_and_no_outcome_is_guessed(driver):
    tier = with_steps(driver, mark_commits="false")
    tier.commit_data(*begun(tier))
    assert driver.stat("k").user_metadata == METADATA
    tier = with_steps(driver, lost_answer, mark_commits=False)
    with pytest.raises(StoreTimeoutError, match=NOT_KNOWN):
        tier.commit_data(*begun(tier))


def test_marks_of_uploads_that_are_over_are_forgotten(driver):
    made = []

    def make(rest):
        made.append(RetryLayer(rest))
        return made[-1]

    tier = stack(driver, layer(make))
    for _ in range(3):
        tier.commit_data(*begun(tier))
        tier.abort_data(begun(tier)[0])
    left = tier.begin_data("k")
    (retry,) = made
    assert list(retry._markers._markers) == [left]
