"""What the suite does not ask of the driver `fsspec`: URLs, protocols, secrets, errors, its use of a file system."""

from __future__ import annotations

import errno
import pickle
import sys
import threading
import traceback
from datetime import UTC, datetime
from types import SimpleNamespace

import fsspec
import paramiko
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from servers.sftp import PASSWORD, SftpServer
from waiting import wait_for

from offload_core.storage.tier import Tier, open_store
from offload_drivers.fsspec import FsspecDriver
from offload_drivers.fsspec.errors import translated
from offload_drivers.fsspec.files import _as_time
from offload_drivers.fsspec.options import checked_options
from offload_hooks.errors import (
    AccessDeniedError,
    InvalidKeyError,
    MissingExtraError,
    ObjectExistsError,
    ObjectNotFoundError,
    OffloadError,
    OptionError,
    StoreError,
    StoreFullError,
    StoreTimeoutError,
    StoreUnavailableError,
    UploadError,
)

SECRET = "hunter2secret"
BYTES = "application/octet-stream"


def put(driver, key, *blocks, metadata=None, create_only=False):
    """A data object of these blocks."""
    upload = driver.begin_data(key, BYTES, metadata or {})
    receipts, offset = [], 0
    for number, block in enumerate(blocks, 1):
        receipts.append(driver.write_block(upload, number, offset, block))
        offset += len(block)
    return driver.commit_data(upload, receipts, create_only)


def keys(driver, prefix=""):
    return [found.key for found in driver.list_objects(prefix, "")]


# --- URLs and options ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "options", "location"),
    [
        ("fsspec+sftp://host/a/b/", {"protocol": "sftp", "root": "host/a/b"}, "fsspec+sftp://host/a/b"),
        ("FSSPEC+SFTP://host:22", {"protocol": "sftp", "root": "host:22"}, "fsspec+sftp://host:22"),
        ("fsspec+file:///a%20b", {"protocol": "file", "root": "/a b"}, "fsspec+file:///a%20b"),
        (
            "fsspec+memory://a%40b/c%40d",
            {"protocol": "memory", "root": "a@b/c@d"},
            "fsspec+memory://a%40b/c%40d",
        ),
        ("fsspec+memory://", {"protocol": "memory", "root": ""}, "fsspec+memory://"),
    ],
)
def test_a_url_names_protocol_and_root_and_the_location_is_such_a_url(url, options, location):
    assert FsspecDriver.options_from_url(url) == options
    for tier in (FsspecDriver(**options), open_store(url), open_store("fsspec", **options)):
        assert tier.describe().location == location
    assert FsspecDriver.options_from_url(location) == options


@pytest.mark.parametrize(
    "url",
    [
        "fsspec://host/a",
        "fsspec+://host/a",
        "fsspec+sftp:host/a",
        "s3://bucket/a",
        f"fsspec+sftp://user:{SECRET}@host/a",
        f"fsspec+sftp://user:a/{SECRET}@host/a",
        f"fsspec+sftp://host/a?password={SECRET}",
        f"fsspec+sftp://host/a#{SECRET}",
        f"fsspec+sftp://user:{SECRET}%40host/a",
        "fsspec+memory://a/../b",
        "fsspec+memory://%ff",
        "fsspec+simplecache://sftp://host/a",
        "fsspec+memory://a::b",
        "fsspec+file://relative/path",
    ],
)
def test_any_other_url_is_refused_without_repeating_it(url):
    with pytest.raises(OptionError) as caught:
        FsspecDriver(**FsspecDriver.options_from_url(url))
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_storage_options_are_a_dict_or_json(memory):
    for given in ({"host": "h", "n": 2}, '{"host": "h", "n": 2}'):
        options = checked_options(protocol="memory", root=memory, storage_options=given)
        assert options.storage_options == {"host": "h", "n": 2}
    for nothing in (None, "", {}):
        assert checked_options(protocol="memory", root=memory, storage_options=nothing).storage_options == {}


@pytest.mark.parametrize("given", ["{", f'"{SECRET}"', "[1]", [SECRET], {1: SECRET}])
def test_storage_options_that_are_none_are_refused_by_name(given, memory):
    with pytest.raises(OptionError, match=r"'storage_options'") as caught:
        FsspecDriver("memory", memory, given)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_an_unknown_protocol_names_those_that_are_close():
    with pytest.raises(OptionError, match=r"no file system 'sfpt'\. Close: .*\bsftp\b"):
        open_store("fsspec+sfpt://host/a")
    with pytest.raises(OptionError, match=r"It knows: .*\bdbfs, .*\bsftp\b"):
        open_store("fsspec", protocol="q", root="a")


def test_a_protocol_whose_library_is_missing_says_what_to_install():
    said = "Install no_such_library to access nothing"
    fsspec.register_implementation("nothing", "no_such_library.FileSystem", clobber=True, errtxt=said)
    with pytest.raises(
        MissingExtraError, match=r"Install no_such_library .*: pip install no_such_library"
    ) as caught:
        open_store("fsspec+nothing://host/a")
    assert caught.value.found == "no module 'no_such_library'"


def test_options_that_the_file_system_does_not_take_are_named_without_their_values(open_driver):
    driver = open_driver("sftp", "127.0.0.1:1/a", {"passwrd": SECRET})
    with pytest.raises(OptionError, match=r"of these storage_options .*Given: passwrd") as caught:
        driver.stat("k")
    assert SECRET not in f"{caught.value} {caught.value!r}"


def test_a_tier_is_pickled_by_its_options_and_shows_no_secret():
    tier = open_store("fsspec+sftp://host/a", storage_options={"username": "u", "password": SECRET})
    again = pickle.loads(pickle.dumps(tier))
    assert isinstance(again, Tier)
    assert again.describe() == tier.describe()
    made = FsspecDriver("sftp", "host/a", {"password": SECRET})
    assert SECRET not in f"{made!r} {made._options!r} {tier!r} {tier.spec!r} {tier.describe()} {again!r}"


# --- errors --------------------------------------------------------------------------------------


class SSHException(Exception):  # noqa: N818 (as paramiko calls it)
    pass


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (FileNotFoundError("x"), ObjectNotFoundError),
        (PermissionError("x"), AccessDeniedError),
        (FileExistsError("x"), ObjectExistsError),
        (IsADirectoryError("x"), InvalidKeyError),
        (TimeoutError("x"), StoreTimeoutError),
        (ConnectionResetError("x"), StoreUnavailableError),
        (EOFError(), StoreUnavailableError),
        (OSError("Socket is closed"), StoreUnavailableError),
        (OSError(errno.ENOSPC, "full"), StoreFullError),
        (OSError(errno.ENAMETOOLONG, "long"), InvalidKeyError),
        (OSError("Failure"), StoreError),
        (SSHException("lost"), StoreUnavailableError),
        (SSHException("Server 'h' not found in known_hosts"), AccessDeniedError),
        (NotImplementedError(), StoreError),
        (ValueError("odd"), StoreError),
        *(
            (type("HTTPError", (Exception,), {"status": status})("x"), kind)
            for status, kind in (
                (403, AccessDeniedError),
                (404, ObjectNotFoundError),
                (429, StoreUnavailableError),
                (503, StoreUnavailableError),
                (400, StoreError),
            )
        ),
        (type("E", (Exception,), {"response": SimpleNamespace(status_code=401)})("x"), AccessDeniedError),
    ],
    ids=str,
)
def test_errors_of_a_file_system_are_ours_with_their_cause(raised, kind):
    options = checked_options(protocol="memory", root="a", storage_options={})
    with pytest.raises(OffloadError) as caught, translated("read", options, "k"):
        raise raised
    assert type(caught.value) is kind
    assert (caught.value.key, caught.value.__cause__) == ("k", raised)
    assert "cannot read in fsspec+memory://a" in str(caught.value)


def test_an_error_shows_nothing_of_the_storage_options():
    given = {"password": SECRET, "nested": {"keys": [f"{SECRET}-2"]}, "host": "h"}
    options = checked_options(protocol="memory", root="h/a", storage_options=given)
    with pytest.raises(StoreError) as caught, translated("read", options):
        raise ValueError(f"no login by {SECRET} or {SECRET}-2 at h\nmore {SECRET}")
    assert caught.value.found == "ValueError: no login by ******** or ******** at h"


def test_a_wrong_password_is_denied(sftp_server, sftp_root, open_driver):
    wrong = sftp_server.storage_options | {"password": SECRET}
    with pytest.raises(AccessDeniedError) as caught:
        open_driver("sftp", sftp_root, wrong).stat("k")
    assert SECRET not in f"{caught.value!r}"


def test_an_unknown_host_key_can_be_refused(sftp_server, sftp_root, open_driver):
    strict = sftp_server.storage_options | {"host_key_policy": "reject"}
    with pytest.raises(AccessDeniedError, match="not found in known_hosts"):
        open_driver("sftp", sftp_root, strict).stat("k")


def test_a_closed_driver_and_a_call_that_failed_leave_no_connection(sftp_server, sftp_root, open_driver):
    before = set(threading.enumerate())

    def connections():  # each has a thread of paramiko's, which ends a moment later
        return len(
            [new for new in set(threading.enumerate()) - before if isinstance(new, paramiko.Transport)]
        )

    driver = open_driver("sftp", sftp_root, sftp_server.storage_options)
    with pytest.raises(ObjectNotFoundError):
        driver.stat("k")
    assert connections() == 1
    driver.close()
    wait_for(lambda: not connections())
    with pytest.raises(StoreUnavailableError), driver._tier("fail"):
        raise ConnectionResetError
    wait_for(lambda: not connections())


@pytest.mark.long
def test_blocks_are_joined_while_a_server_still_owes_answers(on_sftp):
    blocks = [bytes([number]) * (5 << 20) for number in range(2)]  # of 32 KiB, more than a hundred answers
    put(on_sftp, "k", *blocks)
    assert bytes(on_sftp.read_range("k", (5 << 20) - 1, 2)) == b"\0\1"
    assert on_sftp.stat("k").size_bytes == 10 << 20


class OnlyThisKey(paramiko.MissingHostKeyPolicy):
    """Accepts one server, as the documentation shows."""

    expected = ""

    def missing_host_key(self, client, hostname, key):  # noqa: ARG002 (paramiko calls it so)
        if key.fingerprint != self.expected:
            raise paramiko.SSHException(f"{hostname} shows another key, {key.fingerprint}")


def test_a_server_can_be_known_by_its_key(sftp_server, sftp_root, open_driver, monkeypatch):
    pinned = sftp_server.storage_options | {"host_key_policy": OnlyThisKey}
    with pytest.raises(StoreUnavailableError, match="shows another key") as caught:
        open_driver("sftp", sftp_root, pinned).list_uploads("")
    monkeypatch.setattr(OnlyThisKey, "expected", caught.value.found.rpartition(" ")[2])
    assert list(open_driver("sftp", sftp_root, pinned).list_uploads("")) == []


@pytest.mark.long
def test_a_connection_that_breaks_is_not_used_again(start_server, open_driver):
    server = start_server(SftpServer())
    (server.files / "tier").mkdir()
    driver = open_driver("sftp", f"{server.host}:{server.port}/tier", server.storage_options)
    driver.write_index("k", b"data", BYTES, {}, False)
    server.kill()
    for _ in range(2):
        with pytest.raises(StoreUnavailableError) as caught:
            driver.stat("k")
        assert PASSWORD not in str(caught.value)
    server.restart()
    assert driver.stat("k").size_bytes == 4
    assert bytes(driver.read_range("k", 1, 2)) == b"at"


# --- what it asks of a file system ---------------------------------------------------------------


@pytest.fixture
def registered(monkeypatch):
    """Has fsspec know a file system with other methods by the name `mine`."""

    def register(kind, **methods):
        def strip(cls, path):
            return kind._strip_protocol(str(path).removeprefix("mine://"))

        made = type("Mine", (kind,), {"_strip_protocol": classmethod(strip), **methods})
        monkeypatch.setitem(sys.modules["fsspec.registry"]._registry, "mine", made)

    return register


def test_bytes_are_read_in_ranges_and_nothing_else(registered, open_driver, tmp_path):
    read = []

    def _open(self, path, mode="rb", block_size=None, **more):
        file = LocalFileSystem._open(self, path, mode, block_size, **more)
        real = file.f.read
        file.read = lambda size=-1: read.append(size) or real(size)
        return file

    registered(LocalFileSystem, _open=_open)
    driver = open_driver("mine", str(tmp_path))
    put(driver, "k", bytes(1 << 20))
    read.clear()
    assert bytes(driver.read_range("k", 1000, 17)) == bytes(17)
    assert read == [17]


def test_a_server_that_answers_a_range_with_the_whole_object_is_not_believed(registered, open_driver, memory):
    def cat_file(self, path, start=None, end=None, **more):
        return MemoryFileSystem.cat_file(self, path)

    registered(MemoryFileSystem, cat_file=cat_file)
    driver = open_driver("mine", memory)
    put(driver, "k", b"0123456789")
    with pytest.raises(StoreError, match="does not read in ranges") as caught:
        driver.read_range("k", 2, 3)
    assert not caught.value.retryable


def _refuses(self, source, target, **more):
    if self.exists(target):
        raise FileExistsError(target)
    LocalFileSystem.mv(self, source, target)


def _does_nothing(self, source, target, **more):
    if not self.exists(target):
        LocalFileSystem.mv(self, source, target)


def test_a_rename_whose_connection_broke_does_not_cost_the_old_object(registered, open_driver, tmp_path):
    def mv(self, source, target, **more):
        if self.exists(target) and not target.endswith(".json"):
            raise ConnectionResetError
        LocalFileSystem.mv(self, source, target)

    registered(LocalFileSystem, mv=mv)
    driver = open_driver("mine", str(tmp_path))
    put(driver, "k", b"old", metadata={"who": "old"})
    with pytest.raises(StoreUnavailableError):
        put(driver, "k", b"new one", metadata={"who": "new"})
    assert bytes(driver.read_range("k", 0, 3)) == b"old"
    assert driver.stat("k").user_metadata == {"who": "old"}


@pytest.mark.parametrize("mv", [_refuses, _does_nothing])
def test_a_file_system_that_does_not_rename_over_a_file_replaces_objects_all_the_same(
    registered, open_driver, tmp_path, mv
):
    registered(LocalFileSystem, mv=mv)
    driver = open_driver("mine", str(tmp_path))
    for data, metadata in ((b"old", {"who": "old"}), (b"new and longer", {"who": "new"}), (b"3rd", {})):
        put(driver, "a/k", data, metadata=metadata)
        assert bytes(driver.read_range("a/k", 0, len(data))) == data
        assert driver.stat("a/k").user_metadata == metadata
        driver.write_index("a/i", data, BYTES, metadata, False)
        assert driver.stat("a/i").user_metadata == metadata


def test_a_file_of_another_length_than_was_written_is_no_block(registered, open_driver, memory):
    def pipe_file(self, path, value, mode="overwrite", **more):
        MemoryFileSystem.pipe_file(self, path, value[:5] if len(value) == 9 else value)

    registered(MemoryFileSystem, pipe_file=pipe_file)
    driver = open_driver("mine", memory)
    upload = driver.begin_data("k", BYTES, {})
    with pytest.raises(StoreUnavailableError, match=r"expected 9 bytes, found 5 bytes"):
        driver.write_block(upload, 1, 0, b"123456789")


def test_a_file_system_without_times_never_has_old_objects(registered, open_driver, memory):
    def info(self, path, **more):
        return {name: value for name, value in MemoryFileSystem.info(self, path).items() if name != "created"}

    def ls(self, path, detail=True, **more):
        return [
            {name: value for name, value in each.items() if name != "created"}
            for each in MemoryFileSystem.ls(self, path)
        ]

    def modified(self, path):
        raise NotImplementedError

    registered(MemoryFileSystem, info=info, ls=ls, modified=modified)
    driver = open_driver("mine", memory)
    before = datetime.now(UTC)
    for who in ("one", "two"):  # of one length
        put(driver, "k", b"data", metadata={"who": who})
        assert driver.stat("k").user_metadata == {"who": who}
    assert driver.stat("k").modified_at >= before
    assert [found.modified_at >= before for found in driver.list_objects("", "")] == [True]


@pytest.mark.parametrize(
    "value",
    [
        1714564800,
        1714564800.0,
        1714564800000,
        "20240501120000",
        "2024-05-01T12:00:00Z",
        "2024-05-01T14:00:00+02:00",
        datetime(2024, 5, 1, 12, tzinfo=UTC),
        datetime(2024, 5, 1, 12),
    ],
    ids=str,
)
def test_a_time_may_be_written_in_any_way(value):
    assert _as_time(value) == datetime(2024, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("value", [None, "", "yesterday", [], {}])
def test_what_is_no_time_is_none(value):
    assert _as_time(value) is None


def test_a_missing_root_is_told_from_an_empty_one_where_there_are_directories(on_file, open_driver, memory):
    with pytest.raises(ObjectNotFoundError, match="does not exist"):
        on_file.list_objects("", "")
    assert keys(open_driver("memory", memory)) == []


def test_create_only_leaves_an_object_that_is_there(on_file):
    put(on_file, "k", b"old")
    with pytest.raises(ObjectExistsError):
        put(on_file, "k", b"new", create_only=True)
    with pytest.raises(ObjectExistsError):
        on_file.write_index("k", b"new", BYTES, {}, True)
    assert bytes(on_file.read_range("k", 0, 3)) == b"old"
    assert not on_file.describe().capabilities.create_only


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (LocalFileSystem, ("mv", "_open", "rm_file", "makedirs")),
        (MemoryFileSystem, ("cp_file", "_open", "pipe_file", "_rm")),
    ],
)
def test_a_commit_is_made_again_after_each_of_its_steps(
    registered, open_driver, tmp_path, memory, kind, names
):
    """The answer to one call of the file system is lost, which did its work: the commit ends when it is repeated."""
    calls = []

    def losing(name):
        def call(self, *given, **named):
            answer = getattr(kind, name)(self, *given, **named)
            calls.append(name)
            if len(calls) == lost_at:
                raise ConnectionResetError("the answer is lost")
            return answer

        return call

    lost_at = 0
    registered(kind, **{name: losing(name) for name in names})
    driver = open_driver("mine", memory if kind is MemoryFileSystem else str(tmp_path))
    for old in (False, True):
        for number in range(1, 100):
            key = f"{old}/{number}"
            if old:
                put(driver, key, b"the old one", metadata={"who": "old"})
            upload = driver.begin_data(key, BYTES, {"who": "new"})
            receipts = [driver.write_block(upload, 1, 0, b"one"), driver.write_block(upload, 2, 3, b"two")]
            calls.clear()
            lost_at = number
            try:
                driver.commit_data(upload, receipts, False)
                is_lost = False
            except StoreUnavailableError:
                is_lost = True
            reached, lost_at = len(calls) >= number, 0
            if is_lost:
                assert _is_whole(driver, key, old)
                driver.commit_data(upload, receipts, False)
            stat = driver.stat(key)
            assert (bytes(driver.read_range(key, 0, 6)), stat.size_bytes) == (b"onetwo", 6)
            assert stat.user_metadata == {"who": "new"}
            driver.abort_data(upload)
            assert list(driver.list_uploads("")) == []
            if not reached:
                break
        assert number > 4


def _is_whole(driver, key, old):
    """Whether there is the old object or the new one, each with its own metadata."""
    try:
        stat = driver.stat(key)
    except ObjectNotFoundError:
        return not old
    return (stat.size_bytes, stat.user_metadata["who"]) in ((11, "old"), (6, "new"))


def test_an_upload_whose_record_a_crash_cut_off_is_listed_without_key_and_dropped(on_file, tmp_path):
    upload = on_file.begin_data("k", BYTES, {})
    record = tmp_path / "tier" / ".offload-uploads" / f"{upload.upload_id}.json"
    record.write_bytes(record.read_bytes()[:9])
    (stale,) = on_file.list_uploads("")
    assert (stale.upload.key, stale.upload.upload_id) == ("", upload.upload_id)
    assert on_file.abort_data(stale.upload)
    assert list(on_file.list_uploads("")) == []


def test_a_receipt_names_no_other_file(on_file):
    upload = on_file.begin_data("k", BYTES, {})
    receipt = on_file.write_block(upload, 1, 0, b"data")
    for tag in ("", "../x", "1-" + "0" * 32, receipt.tag + "/../x"):
        with pytest.raises(UploadError, match="not of this upload"):
            on_file.commit_data(upload, [type(receipt)(part_number=1, offset=0, length=4, tag=tag)], False)
