"""A listing that breaks off goes on after the last item that was seen."""

from __future__ import annotations

import pytest
from layered import Calls, layer, stack

from offload_hooks import hookimpl
from offload_hooks.errors import AccessDeniedError, StoreUnavailableError
from offload_hooks.testing import MemoryDriver
from offload_layers.retry import RetryLayer

AT_ONCE = {"first_wait_s": 0, "jitter_s": 0}
KEYS = [f"p/{number:02}" for number in range(10)]


class BreaksOff:
    """Listings that end with an error after so many items each, the last of these numbers for all others."""

    def __init__(self, rest, *after, error=StoreUnavailableError):
        self._rest, self._after, self._error = rest, list(after), error

    @hookimpl
    def list_objects(self, prefix, start_after):
        return self._broken(self._rest.list_objects(prefix=prefix, start_after=start_after))

    @hookimpl
    def list_uploads(self, prefix):
        return self._broken(self._rest.list_uploads(prefix=prefix))

    def _broken(self, listing):
        after = self._after.pop(0) if len(self._after) > 1 else self._after[0]
        for count, item in enumerate(listing):
            if count == after:
                raise self._error("the page was lost")
            yield item


@pytest.fixture
def driver():
    driver = MemoryDriver()
    for key in [*KEYS, "q/1"]:
        driver.write_index(key, b"x", "text/plain", {}, False)
    return driver


def over(driver, *after, calls=None, error=StoreUnavailableError, **options):
    return stack(
        driver,
        layer(RetryLayer, **{**AT_ONCE, **options}),
        (calls or Calls()).layer(),
        layer(lambda rest: BreaksOff(rest, *after, error=error)),
    )


def listed(tier, start_after=""):
    return [found.key for found in tier.list_objects("p/", start_after)]


def test_it_goes_on_after_the_last_key(driver):
    calls = Calls()
    assert listed(over(driver, 4, 0, 3, 100, calls=calls)) == KEYS
    begun = [call["start_after"] for call in calls.of("list_objects")]
    assert begun == ["", "p/03", "p/03", "p/06"]


@pytest.mark.parametrize("after", range(1, 12))
def test_wherever_it_breaks_off_each_key_is_listed_once(driver, after):
    assert listed(over(driver, after)) == KEYS


def test_it_keeps_to_where_it_was_to_begin(driver):
    calls = Calls()
    assert listed(over(driver, 0, 2, 100, calls=calls), "p/04") == KEYS[5:]
    assert [call["start_after"] for call in calls.of("list_objects")] == ["p/04", "p/04", "p/06"]


def test_attempts_are_counted_anew_after_each_item(driver):
    # Each listing gives one item, so ten attempts in all; two are allowed in a row.
    assert listed(over(driver, 1, attempts=2)) == KEYS


def test_without_progress_it_gives_up(driver):
    calls = Calls()
    tier = over(driver, 3, 0, calls=calls, attempts=4)
    seen = []
    with pytest.raises(StoreUnavailableError, match="the page was lost"):
        seen.extend(found.key for found in tier.list_objects("p/"))
    assert len(calls.of("list_objects")) == 4


def test_an_error_that_stays_is_raised_at_once(driver):
    calls = Calls()
    with pytest.raises(AccessDeniedError):
        listed(over(driver, 3, calls=calls, error=AccessDeniedError))
    assert len(calls.of("list_objects")) == 1


def test_it_stays_lazy(driver):
    seen = []

    class Watching(MemoryDriver):
        @hookimpl
        def list_objects(self, prefix, start_after):
            for found in super().list_objects(prefix, start_after):
                seen.append(found.key)
                yield found

    listing = stack(Watching(driver.tier), layer(RetryLayer)).list_objects("p/")
    assert seen == []
    assert next(listing).key == "p/00"
    assert seen == ["p/00"]


def test_uploads_are_listed_once_each_though_they_have_no_order(driver):
    begun = {driver.begin_data(f"p/{number}", "x", {}) for number in range(6)}
    found = [stale.upload for stale in over(driver, 2, 4, 5, 100).list_uploads("p/")]
    assert len(found) == 6
    assert set(found) == begun
