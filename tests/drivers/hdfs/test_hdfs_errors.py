"""What HDFS refuses or does not answer, as our errors."""

from __future__ import annotations

import json
import pickle

import pytest
from layered import calls
from network.proxies import WHOLE, Proxy, Spoil
from servers.minihdfs import MiniHdfs

from offload_drivers.hdfs import HdfsDriver
from offload_drivers.hdfs.errors import translation
from offload_hooks.errors import (
    AccessDeniedError,
    InvalidKeyError,
    ObjectExistsError,
    ObjectNotFoundError,
    OffloadError,
    OptionError,
    StoreError,
    StoreFullError,
    StoreTimeoutError,
    StoreUnavailableError,
    StoreUnreachableError,
)

pytestmark = pytest.mark.sampled(6)


def all_fail(driver, *kinds):
    for name, (key, call) in calls(driver).items():
        with pytest.raises(OffloadError) as caught:
            call()
        error = caught.value
        assert type(error) in kinds, f"{name}: {error!r}"
        assert error.key == key
        assert type(pickle.loads(pickle.dumps(error))) is type(error)


# --- refused ---------------------------------------------------------------------------------------------------------

STRANGER = """
    import json, sys
    from offload_drivers.hdfs import HdfsDriver
    from offload_hooks.errors import OffloadError

    driver = HdfsDriver(url=sys.argv[1], user="stranger")
    found = {}
    for name, call in {
        "begin_data": lambda: driver.begin_data("k", "a/b", {}),
        "write_index": lambda: driver.write_index("k", b"x", "a/b", {}, False),
        "delete": lambda: driver.delete(["k"]),
        "read_range": lambda: bytes(driver.read_range("k", 0, 3)).decode(),
        "stat": lambda: dict(driver.stat("k").user_metadata),
        "list_objects": lambda: [found.key for found in driver.list_objects("", "")],
        "list_uploads": lambda: list(driver.list_uploads("")),
    }.items():
        try:
            found[name] = call()
        except OffloadError as error:
            found[name] = f"{type(error).__name__} of {error.key}"
            assert "stranger" in str(error)
    driver.close()
    print(json.dumps(found))
"""


@pytest.fixture
def as_stranger(run_program, minihdfs, root):
    """What each call of another user gives."""

    def asked():
        return json.loads(run_program(STRANGER, minihdfs.url + root))

    return asked


def test_another_user_may_do_what_the_permissions_say_and_is_named(driver, web, as_stranger):
    driver.write_index("k", b"abc", "a/b", {"who": "we"}, True)
    denied = "AccessDeniedError of "
    assert as_stranger() == {
        "begin_data": denied + "k",
        "write_index": denied + "k",
        "delete": denied + "k",
        "read_range": "abc",
        "stat": {"who": "we"},
        "list_objects": ["k"],
        "list_uploads": [],
    }
    web.operate("PUT", "", op="SETPERMISSION", permission="700")
    found = as_stranger()
    assert set(found.values()) == {denied + "k", denied + "None"}
    assert found["list_objects"] == found["list_uploads"] == denied + "None"


def test_a_quota_of_bytes_is_a_full_store_and_more_room_is_found(driver, web):
    upload = driver.begin_data("k", "a/b", {})
    web.operate("PUT", "", op="SETQUOTA", storagespacequota=str(1 << 20))
    with pytest.raises(StoreFullError) as caught:
        driver.write_block(upload, 1, 0, b"abc")
    assert (caught.value.key, caught.value.block) == ("k", 1)
    with pytest.raises(StoreFullError):
        driver.write_index("i", b"abc", "a/b", {}, True)
    assert [stale.upload for stale in driver.list_uploads("")] == [upload], "and nothing of the index"
    web.operate("PUT", "", op="SETQUOTA", storagespacequota=str(1 << 40))
    driver.commit_data(upload, [driver.write_block(upload, 1, 0, b"abc")], True)
    assert web.get("k") == b"abc"


def test_a_quota_of_names_is_a_full_store(driver, web):
    driver.write_index("k", b"abc", "a/b", {}, True)
    web.operate("PUT", "", op="SETQUOTA", namespacequota="4")
    with pytest.raises(StoreFullError) as caught:
        driver.begin_data("k", "a/b", {})
    assert caught.value.key == "k"
    assert driver.read_range("k", 0, 3) == b"abc"


# --- not answered ----------------------------------------------------------------------------------------------------


def test_a_namenode_that_is_not_there_is_said_by_every_call(open_driver):
    all_fail(open_driver(url="hdfs://127.0.0.1:1"), StoreUnreachableError)


def test_a_host_that_has_no_address_is_said(open_driver):
    with pytest.raises(OffloadError) as caught:
        open_driver(url="hdfs://no-such-host.invalid:8020").stat("k")
    assert type(caught.value) is StoreUnreachableError


def test_a_namenode_that_does_not_answer_is_given_up_and_asked_again_later(open_driver, minihdfs, root):
    open_driver().write_index("k", b"abc", "a/b", {}, True)
    with Proxy(minihdfs.url) as proxy:
        silent = True
        proxy.choose = lambda _: Spoil(silent_after=0) if silent else WHOLE
        driver = open_driver(url=proxy.url, timeout_s=0.3)
        all_fail(driver, StoreTimeoutError)
        silent = False
        patient = open_driver(url=proxy.url, timeout_s=30)
        assert patient.read_range("k", 0, 3) == b"abc"
        assert patient.stat("k").size_bytes == 3


def test_one_driver_recovers_from_a_namenode_that_did_not_answer(open_driver, minihdfs):
    open_driver().write_index("k", b"abc", "a/b", {}, True)
    with Proxy(minihdfs.url) as proxy:
        proxy.choose = lambda number: Spoil(silent_after=0) if number == 0 else WHOLE
        driver = open_driver(url=proxy.url, timeout_s=5)
        with pytest.raises(StoreTimeoutError):
            driver.stat("k")
        assert driver.stat("k").size_bytes == 3
        proxy.choose = lambda _: WHOLE
        proxy.cut_all()
        assert driver.read_range("k", 0, 3) == b"abc"


@pytest.mark.parametrize(
    ("spoil", "kinds"),
    [
        # reset before it is made, or just after: the client may see either
        (Spoil(refuse=True), (StoreUnavailableError, StoreUnreachableError)),
        (Spoil(reset_after=0), (StoreUnavailableError,)),
        (Spoil(truncate_after=0), (StoreUnavailableError,)),
    ],
)
def test_connections_that_break_are_said_by_every_call(open_driver, minihdfs, spoil, kinds):
    with Proxy(minihdfs.url, lambda _: spoil) as proxy:
        all_fail(open_driver(url=proxy.url), *kinds)


@pytest.mark.nightly  # clusters that are killed: tests/stores/test_faults.py, too
def test_an_upload_goes_on_after_the_cluster_was_killed_and_came_back(start_server):
    server = start_server(MiniHdfs())
    driver = HdfsDriver(url=f"{server.url}/tier", user=server.superuser, timeout_s=60)
    driver.write_index("before", b"abc", "a/b", {"who": "we"}, True)
    upload = driver.begin_data("k", "a/b", {"who": "we"})
    receipts = [driver.write_block(upload, 1, 0, b"first,")]
    server.kill()
    with pytest.raises(StoreUnavailableError):
        driver.write_block(upload, 2, 6, b"second")
    with pytest.raises(StoreUnavailableError):
        driver.read_range("before", 0, 3)
    server.restart()
    patiently(lambda: driver.write_index("after", b"def", "a/b", {}, False))
    assert [stale.upload for stale in driver.list_uploads("")] == [upload]
    assert [found.key for found in driver.list_objects("", "")] == ["after", "before"]
    receipts.append(patiently(lambda: driver.write_block(upload, 2, 6, b"second")))
    patiently(lambda: driver.commit_data(upload, receipts, True))
    assert driver.read_range("k", 0, 12) == b"first,second"
    assert driver.stat("k").user_metadata == {"who": "we"}
    driver.close()


def patiently(call):
    """Make a call until the restarted cluster takes it: it leaves safe mode and recovers leases after a while."""
    for _ in range(100):
        try:
            return call()
        except StoreUnavailableError:
            continue
    return call()


# --- translation -----------------------------------------------------------------------------------------------------


class PanicError(BaseException):
    """Like the library's panics, which are no Exceptions."""


def remote(name, message=""):
    return RuntimeError(f'RPCError("org.apache.hadoop.{name}", "{message}\\n\\tat Java.line(1)")')


def written_to_none(there_are):
    few = "File /k could only be written to 0 of the 1 minReplication nodes."
    return remote("java.io.IOException", f"{few} There are {there_are}")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FileNotFoundError("/k"), ObjectNotFoundError),
        (FileExistsError("/k"), ObjectExistsError),
        (FileExistsError("/k is not a directory"), InvalidKeyError),
        (ConnectionRefusedError("refused"), StoreUnavailableError),
        (OSError("failed to lookup address"), StoreUnavailableError),
        (remote("security.AccessControlException", "Permission denied"), AccessDeniedError),
        (remote("security.token.SecretManager$InvalidToken", "expired"), AccessDeniedError),
        (RuntimeError('GSSAPIError(1, "no ticket")'), AccessDeniedError),
        (RuntimeError('SASLError("refused")'), AccessDeniedError),
        (remote("hdfs.server.namenode.SafeModeException", "in safe mode"), StoreUnavailableError),
        (remote("ipc.StandbyException", "standby"), StoreUnavailableError),
        (remote("ipc.RetriableException", "later"), StoreUnavailableError),
        (remote("hdfs.protocol.DSQuotaExceededException", "quota"), StoreFullError),
        (remote("hdfs.protocol.NSQuotaExceededException", "quota"), StoreFullError),
        (written_to_none("0 datanode(s) running"), StoreUnavailableError),
        (
            written_to_none("2 datanode(s) running and 0 node(s) are excluded in this operation."),
            StoreFullError,
        ),
        (
            written_to_none("2 datanode(s) running and 2 node(s) are excluded in this operation."),
            StoreUnavailableError,
        ),
        (RuntimeError('DataTransferError("closed")'), StoreUnavailableError),
        (RuntimeError('InvalidArgument("No NameNode hosts found")'), OptionError),
        (RuntimeError('InvalidArgument("No fs.defaultFS setting found")'), OptionError),
        (remote("java.lang.NullPointerException"), StoreError),
        (RuntimeError("something else"), StoreError),
        (ValueError("something else"), StoreError),
        (PanicError("range end out of range"), StoreError),
    ],
)
def test_what_the_library_raises_becomes_our_error(error, kind):
    made = translation(error, "read", "hdfs://n/a")
    assert type(made) is kind
    assert str(made).startswith("cannot read in hdfs://n/a")
    assert "Java.line" not in str(made)


def test_the_librarys_message_is_quoted_as_a_line():
    said = {
        remote("x.AccessControlException", "Permission denied: user=b"): "Permission denied: user=b",
        ConnectionRefusedError("refused (os error 111)"): "refused (os error 111)",
        RuntimeError('SASLError("no (such) mechanism")'): "no (such) mechanism",
    }
    for error, message in said.items():
        made = translation(error, "read", "hdfs://n/a")
        assert message in (made.found, made.what.partition(": ")[2])


def test_a_long_message_is_cut():
    assert len(str(translation(remote("x.Y", "m" * 5000), "read", "hdfs://n/a"))) < 400
