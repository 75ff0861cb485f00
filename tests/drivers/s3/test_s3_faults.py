"""The driver `s3` when a real server refuses, dies and comes back, or its answers are lost, in the middle of a job."""

from __future__ import annotations

import json
import traceback

import pytest
from network.fronts import NEVER_ANSWERED
from s3 import HOOKS, PREFIX, every_hook, new_bucket, opened, options, refusal
from servers.versitygw import Versitygw

from offload_core.storage.tier import open_store
from offload_hooks.errors import (
    AccessDeniedError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreUnavailableError,
    UploadError,
)

MIB = 1 << 20
BLOCKS = [b"a" * 5 * MIB, b"b" * 5 * MIB, b"the last one"]


def write(driver, upload, blocks, first=1, offset=0):
    receipts = []
    for number, block in enumerate(blocks, first):
        receipts.append(driver.write_block(upload, number, offset, block))
        offset += len(block)
    return receipts


# --- refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize(
    "wrong",
    [{"access_key_id": "nobody"}, {"secret_access_key": "a-wrong-secret"}],
    ids=["an unknown key", "a wrong secret"],
)
def test_credentials_that_are_wrong_are_denied_and_not_shown(given, wrong, hook):
    with opened(**given | wrong) as driver, pytest.raises(AccessDeniedError) as caught:
        every_hook(driver)[hook]()
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert "root-secret-key" not in shown
    assert "a-wrong-secret" not in shown


@pytest.mark.parametrize("hook", sorted(set(HOOKS) - {"block", "commit", "abort"}))
def test_a_bucket_that_is_not_there_is_named(given, hook):
    given |= {"bucket": "no-such-bucket"}
    with opened(**given) as driver, pytest.raises(ObjectNotFoundError, match="'no-such-bucket'"):
        every_hook(driver)[hook]()


def allow(boto, user, *actions):
    """Let a user do this in the bucket, and nothing else."""
    statement = {"Effect": "Allow", "Principal": {"AWS": [user.access_key]}}
    arn = f"arn:aws:s3:::{boto.bucket}"
    inside = [f"s3:{action}" for action in actions if "Bucket" not in action]
    policy = {"Version": "2012-10-17", "Statement": [statement | {"Action": inside, "Resource": f"{arn}/*"}]}
    if len(inside) < len(actions):
        outside = [f"s3:{action}" for action in actions if "Bucket" in action]
        policy["Statement"].append(statement | {"Action": outside, "Resource": arn})
    boto.client.put_bucket_policy(Bucket=boto.bucket, Policy=json.dumps(policy))


def test_access_that_is_taken_away_in_the_middle_of_a_job(versitygw, given, boto, bucket):
    user = versitygw.add_user(f"user-of-{bucket}")
    may_write = ("GetObject", "PutObject", "AbortMultipartUpload", "ListMultipartUploadParts")
    allow(boto, user, *may_write)
    given |= {"access_key_id": user.access_key, "secret_access_key": user.secret_key}
    with opened(**given) as driver:
        upload = driver.begin_data("k", "a/b", {})
        receipts = write(driver, upload, BLOCKS[:1])
        allow(boto, user, "GetObject", "ListBucket")
        for call in (
            # A small one: this server denies a large one and hangs up while it is sent, so that no answer comes.
            lambda: driver.write_block(upload, 2, 5 * MIB, b"small"),
            lambda: driver.write_index("i", b"x", "a/b", {}, True),
            lambda: driver.begin_data("j", "a/b", {}),
            lambda: driver.delete(["k"]),
        ):
            with pytest.raises(AccessDeniedError) as caught:
                call()
            assert user.secret_key not in "".join(traceback.format_exception(caught.value))
        assert list(driver.list_objects("", "")) == []
        allow(boto, user, *may_write)
        receipts += write(driver, upload, BLOCKS[1:], 2, 5 * MIB)
        assert driver.commit_data(upload, receipts, True).size_bytes == sum(map(len, BLOCKS))
    assert boto.get("k") == b"".join(BLOCKS)


def test_the_permissions_that_the_page_names_are_enough(versitygw, given, boto, bucket):
    user = versitygw.add_user(f"user-of-{bucket}")
    allow(
        boto,
        user,
        *("GetObject", "PutObject", "DeleteObject", "AbortMultipartUpload", "ListMultipartUploadParts"),
        *("ListBucket", "ListBucketMultipartUploads"),
    )
    given |= {"access_key_id": user.access_key, "secret_access_key": user.secret_key}
    with opened(**given) as driver:
        upload = driver.begin_data("k", "a/b", {})
        stale = driver.begin_data("k", "a/b", {})
        driver.commit_data(upload, write(driver, upload, BLOCKS), True)
        driver.write_index("i", b"x", "a/b", {}, True)
        assert [found.key for found in driver.list_objects("", "")] == ["i", "k"]
        assert [found.upload for found in driver.list_uploads("")] == [stale]
        assert driver.abort_data(stale)
        assert driver.delete(["i", "k"]) == 2
        assert driver.delete(["i"]) == 1
    assert boto.keys() == set()


def test_a_token_that_expires_in_the_middle_of_a_job_is_told_and_the_job_goes_on(fronted, front, boto):
    upload = fronted.begin_data("k", "a/b", {})
    front.rule = lambda _: refusal(400, "ExpiredToken", "The provided token has expired.")
    with pytest.raises(AccessDeniedError, match="a role to assume, which is renewed"):
        write(fronted, upload, BLOCKS)
    front.rule = lambda _: None
    fronted.commit_data(upload, write(fronted, upload, BLOCKS), True)
    assert boto.get("k") == b"".join(BLOCKS)


# --- no answer ------------------------------------------------------------------------------------


def test_a_server_that_is_killed_in_the_middle_of_an_upload_and_comes_back(start_server):
    server = start_server(Versitygw())
    bucket = new_bucket(server)
    with opened(**options(server, bucket=bucket, prefix=PREFIX)) as driver:
        upload = driver.begin_data("k", "a/b", {"role": "data"})
        receipts = write(driver, upload, BLOCKS[:1])
        server.kill()
        with pytest.raises(StoreUnavailableError):
            write(driver, upload, BLOCKS[1:], 2, 5 * MIB)
        server.restart()
        assert list(driver.list_objects("", "")) == []
        assert [stale.upload for stale in driver.list_uploads("")] == [upload]
        receipts += write(driver, upload, BLOCKS[1:], 2, 5 * MIB)
        driver.commit_data(upload, receipts, True)
        assert driver.read_range("k", 5 * MIB - 1, 2) == b"ab"
        assert driver.stat("k").user_metadata == {"role": "data"}


def lose_the_answer(front, method):
    """The server gets the next request by this method, and what it answers is lost."""
    left = [NEVER_ANSWERED]
    front.rule = lambda request: left.pop() if left and request.method == method else None


def test_a_commit_whose_answer_is_lost_is_no_success_and_no_lie(fronted, front, boto):
    upload = fronted.begin_data("k", "a/b", {})
    receipts = write(fronted, upload, BLOCKS)
    lose_the_answer(front, "POST")
    with pytest.raises(StoreUnavailableError):
        fronted.commit_data(upload, receipts, True)
    assert boto.get("k") == b"".join(BLOCKS)
    with pytest.raises(UploadError, match="no such upload"):
        fronted.commit_data(upload, receipts, True)
    lose_the_answer(front, "PUT")
    with pytest.raises(StoreUnavailableError):
        fronted.write_index("i", b"x", "a/b", {}, True)
    assert boto.get("i") == b"x"


@pytest.mark.parametrize("method", ["PUT", "POST", "HEAD"])
def test_as_a_tier_is_opened_a_lost_answer_is_made_good(given, front, boto, method):
    url = f"s3://{given.pop('bucket')}/{given.pop('prefix')}"
    layers = {"layers": ["retry:first_wait_s=0,jitter_s=0"]}
    with open_store(url, **given | {"endpoint_url": front.url}, **layers) as tier:
        upload = tier.begin_data("k")
        receipts = [tier.write_block(upload, 1, 0, b"data")]
        lose_the_answer(front, method)
        assert tier.commit_data(upload, receipts, create_only=True).size_bytes == 4
        lose_the_answer(front, method)
        assert tier.write_index("i", b"index", create_only=True).size_bytes == 5
        with pytest.raises(ObjectExistsError):
            tier.write_index("i", b"index", create_only=True)
    assert boto.get("k") == b"data"
    assert boto.get("i") == b"index"


def test_a_tier_is_opened_under_the_layer_that_tries_again(given, front):
    url = f"s3://{given.pop('bucket')}/{given.pop('prefix')}"
    with open_store(url, **given | {"endpoint_url": front.url}) as tier:
        busy = [refusal(503, "SlowDown")]
        front.rule = lambda _: busy.pop() if busy else None
        assert list(tier.list_objects()) == []
    assert len(front.requests) == 2
