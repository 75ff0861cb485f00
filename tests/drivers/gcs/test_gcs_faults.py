"""Answers that are lost, servers that die and clean-ups that fail: what the driver `gcs` then says and leaves."""

from __future__ import annotations

import json

import pytest
from gcs import PREFIX, opened
from network.fronts import NEVER_ANSWERED, NEVER_SENT, Answer
from servers.fake_gcs import FakeGcs

from offload_hooks.errors import ObjectExistsError, StoreUnavailableError, UploadError

pytestmark = pytest.mark.sampled(6)


@pytest.fixture
def options(bucket, front):
    return {"bucket": bucket, "prefix": PREFIX, "endpoint_url": front.url, "anonymous": True}


def staged(driver, *blocks, key="k", metadata=()):
    upload = driver.begin_data(key, "a/b", dict(metadata))
    receipts, offset = [], 0
    for number, block in enumerate(blocks, 1):
        receipts.append(driver.write_block(upload, number, offset, block))
        offset += len(block)
    return upload, receipts


def once(what, wanted):
    """A rule that holds for the first request that `wanted` names."""
    left = [what]
    return lambda request: left.pop() if left and wanted(request) else None


def is_commit(request):
    return request.path.endswith(f"/{PREFIX}/k/compose")


def is_index(request):
    return request.path.startswith("/upload/") and f'"{PREFIX}/k"'.encode() in request.body


# --- answers that are lost ----------------------------------------------------------------------------------


@pytest.mark.parametrize("create_only", [True, False])
def test_a_commit_whose_answer_was_lost_succeeds_when_it_is_made_again(driver, front, rest, create_only):
    upload, receipts = staged(driver, b"ab", b"c", metadata={"who": "me"})
    front.rule = once(NEVER_ANSWERED, is_commit)
    with pytest.raises(StoreUnavailableError):
        driver.commit_data(upload, receipts, create_only)
    assert rest.get("k") == b"abc"
    stat = driver.commit_data(upload, receipts, create_only)
    assert stat == driver.stat("k")
    assert stat.user_metadata == {"who": "me"}
    assert rest.keys() == {"k"}


@pytest.mark.parametrize(
    "theirs",
    [(b"abd", {"who": "me"}), (b"ab", {"who": "me"}), (b"abc", {"who": "them"}), (b"abc", {})],
    ids=["other bytes", "other size", "other metadata", "no metadata"],
)
def test_somebody_elses_object_is_not_taken_for_that_of_a_lost_answer(driver, front, rest, theirs):
    upload, receipts = staged(driver, b"ab", b"c", metadata={"who": "me"})
    front.rule = once(NEVER_SENT, is_commit)
    with pytest.raises(StoreUnavailableError):
        driver.commit_data(upload, receipts, True)
    rest.put("k", *theirs)
    with pytest.raises(ObjectExistsError):
        driver.commit_data(upload, receipts, True)
    assert rest.get("k") == theirs[0]
    assert driver.abort_data(upload) is True
    assert rest.keys() == {"k"}


def test_the_same_object_of_somebody_else_is_theirs_when_no_answer_was_lost(driver, rest):
    upload, receipts = staged(driver, b"abc", metadata={"who": "me"})
    rest.put("k", b"abc", {"who": "me"})
    with pytest.raises(ObjectExistsError):
        driver.commit_data(upload, receipts, True)


def test_only_the_process_that_lost_the_answer_knows_its_object(options, driver, front):
    upload, receipts = staged(driver, b"abc")
    front.rule = once(NEVER_ANSWERED, is_commit)
    with pytest.raises(StoreUnavailableError):
        driver.commit_data(upload, receipts, True)
    with opened(**options) as other, pytest.raises(ObjectExistsError):
        other.commit_data(upload, receipts, True)
    assert driver.commit_data(upload, receipts, True).size_bytes == 3


def test_an_index_whose_answer_was_lost_is_there_when_it_is_written_again(driver, front, rest):
    front.rule = once(NEVER_ANSWERED, is_index)
    with pytest.raises(StoreUnavailableError):
        driver.write_index("k", b"index", "a/b", {"who": "me"}, True)
    assert rest.get("k") == b"index"
    assert driver.write_index("k", b"index", "a/b", {"who": "me"}, True) == driver.stat("k")
    with pytest.raises(ObjectExistsError):
        driver.write_index("k", b"index", "a/b", {"who": "me"}, True)


def test_an_index_that_was_never_sent_does_not_make_another_ones_ours(driver, front, rest):
    front.rule = once(NEVER_SENT, is_index)
    with pytest.raises(StoreUnavailableError):
        driver.write_index("k", b"index", "a/b", {"who": "me"}, True)
    rest.put("k", b"index", {"who": "them"})
    with pytest.raises(ObjectExistsError):
        driver.write_index("k", b"index", "a/b", {"who": "me"}, True)


def test_an_object_that_vanished_after_it_kept_a_write_out(driver, front, rest):
    front.rule = once(NEVER_ANSWERED, is_index)
    with pytest.raises(StoreUnavailableError):
        driver.write_index("k", b"index", "a/b", {}, True)

    def delete(request):
        if request.method == "GET" and request.path.endswith("/k"):
            rest.delete("k")

    front.rule = delete
    with pytest.raises(ObjectExistsError):
        driver.write_index("k", b"index", "a/b", {}, True)
    assert driver.write_index("k", b"index", "a/b", {}, True).size_bytes == 5


# --- what is left behind ------------------------------------------------------------------------------------


def test_a_commit_whose_clean_up_fails_has_succeeded_and_its_rest_can_be_aborted(driver, front, rest):
    upload, receipts = staged(driver, b"ab", b"c")
    front.rule = lambda request: NEVER_SENT if request.method == "DELETE" else None
    assert driver.commit_data(upload, receipts, True).size_bytes == 3
    front.rule = lambda _: None
    assert [stale.upload for stale in driver.list_uploads("")] == [upload]
    assert [driver.abort_data(upload), driver.abort_data(upload)] == [True, False]
    assert rest.keys() == {"k"}
    assert rest.get("k") == b"abc"


@pytest.mark.parametrize("deleted", range(4))
def test_an_abort_that_is_cut_off_is_still_listed_and_can_be_made_again(driver, front, rest, deleted):
    upload, receipts = staged(driver, b"ab", b"c")
    assert len(receipts) == 2
    seen = []

    def cut_off(request):
        if request.method == "DELETE":
            seen.append(request)
            return NEVER_SENT if len(seen) > deleted else None
        return None

    front.rule = cut_off
    if deleted < 3:
        with pytest.raises(StoreUnavailableError):
            driver.abort_data(upload)
        front.rule = lambda _: None
        assert [stale.upload for stale in driver.list_uploads("")] == [upload]
    assert driver.abort_data(upload) is True
    assert rest.keys() == set()


def test_a_composition_that_fails_half_way_leaves_the_upload_as_it_was(driver, front, rest):
    upload, receipts = staged(driver, *[b"%d" % (number % 10) for number in range(40)])
    busy = Answer(status=503, body=json.dumps({"error": {"code": 503, "message": "Busy"}}).encode())
    front.rule = once(busy, lambda request: "00033-00040" in request.path)
    with pytest.raises(StoreUnavailableError, match="Busy"):
        driver.commit_data(upload, receipts, True)
    assert rest.get("k") is None
    assert driver.commit_data(upload, receipts, True).size_bytes == 40
    assert rest.get("k") == b"0123456789" * 4
    assert rest.keys() == {"k"}


def test_a_part_that_arrives_during_the_abort_is_removed(driver, front, rest):
    upload, _ = staged(driver, b"ab")

    def late_part(request):
        if request.method == "DELETE" and request.path.endswith("00001"):
            rest.put(f".offload-uploads/{upload.upload_id}/00002", b"late")

    front.rule = late_part
    assert driver.abort_data(upload) is True
    assert rest.keys() == set()


def test_an_upload_that_ends_while_it_is_listed_is_left_out(driver, front, rest):
    first, _ = staged(driver)
    second, _ = staged(driver)
    gone, left = sorted((first, second), key=lambda upload: upload.upload_id)

    def end(request):
        if request.path.endswith(f"{gone.upload_id}.json"):
            rest.delete(f".offload-uploads/{gone.upload_id}.json")

    front.rule = end
    assert [stale.upload for stale in driver.list_uploads("")] == [left]


# --- a server that dies -------------------------------------------------------------------------------------


def test_an_upload_goes_on_after_the_server_was_killed_and_started_again(start_server):
    server = start_server(FakeGcs(on_disk=True))
    bucket = server.make_bucket("killed")
    with opened(bucket=bucket, prefix=PREFIX, endpoint_url=server.endpoint, anonymous=True) as driver:
        upload, receipts = staged(driver, b"ab")
        server.kill()
        with pytest.raises(StoreUnavailableError):
            driver.write_block(upload, 2, 2, b"c")
        server.restart()
        receipts.append(driver.write_block(upload, 2, 2, b"c"))
        server.kill()
        with pytest.raises(StoreUnavailableError):
            driver.commit_data(upload, receipts, True)
        server.restart()
        assert driver.commit_data(upload, receipts, True).size_bytes == 3
        assert bytes(driver.read_range("k", 0, 3)) == b"abc"
        with pytest.raises(UploadError):
            driver.commit_data(upload, receipts, True)
