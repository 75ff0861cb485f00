"""`client="pyarrow"` reads what was written otherwise. In processes of their own: a Java machine cannot be ended."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

from offload_drivers.hdfs import HdfsDriver
from offload_hooks.errors import OptionError

pytestmark = pytest.mark.sampled(3)

BEGIN = """
    import json, os, sys
    from offload_drivers.hdfs import HdfsDriver
    from offload_hooks import ByteRange, Upload
    from offload_hooks.errors import OffloadError

    def error_of(call):
        try:
            return repr(call())
        except OffloadError as error:
            return type(error).__name__

    driver = HdfsDriver(url=sys.argv[1], user=sys.argv[2], client="pyarrow", timeout_s=120)
"""


@pytest.fixture
def written(minihdfs, root):
    """A tier with an object of two blocks, an index, and an upload under way."""
    driver = HdfsDriver(url=minihdfs.url, root=root, user=minihdfs.superuser)
    upload = driver.begin_data("d/k", "a/b", {"who": "we"})
    receipts = [driver.write_block(upload, 1, 0, b"first,"), driver.write_block(upload, 2, 6, b"second")]
    driver.commit_data(upload, receipts, True)
    driver.write_index("i", b"index", "c/d", {}, True)
    driver.begin_data("open", "a/b", {})
    yield driver
    driver.close()


def run(program, environment, url, user):
    """A program's answer in JSON."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(BEGIN) + textwrap.dedent(program), url, user],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


def test_it_reads_what_the_other_client_wrote(written, libhdfs, minihdfs, root):
    program = """
        stat = driver.stat("d/k")
        ranges = [ByteRange(key="d/k", offset=4, length=4), ByteRange(key="i", offset=0, length=5)]
        print(json.dumps({
            "ranges": [bytes(each).decode() for each in driver.read_ranges(ranges)],
            "stat": [stat.size_bytes, stat.content_type, dict(stat.user_metadata)],
            "time": stat.modified_at.timestamp(),
            "keys": [found.key for found in driver.list_objects("", "")],
            "after": [found.key for found in driver.list_objects("", "d/k")],
            "uploads": [stale.upload.key for stale in driver.list_uploads("")],
        }))
    """
    answer = run(program, libhdfs, minihdfs.url + root, minihdfs.superuser)
    assert answer.pop("time") == int(written.stat("d/k").modified_at.timestamp())
    assert answer == {
        "ranges": ["t,se", "index"],
        "stat": [12, "a/b", {"who": "we"}],
        "keys": ["d/k", "i"],
        "after": ["i"],
        "uploads": ["open"],
    }


def test_it_tells_what_is_wrong_and_refuses_to_write(written, libhdfs, minihdfs, root):
    program = """
        host = "hdfs://127.0.0.1:1/tier"
        down = HdfsDriver(url=host, user=sys.argv[2], client="pyarrow", timeout_s=120)
        missing = HdfsDriver(url=sys.argv[1], root="none", user=sys.argv[2], client="pyarrow", timeout_s=120)
        print(json.dumps([
            error_of(lambda: driver.read_range("none", 0, 1)),
            error_of(lambda: driver.read_range("d", 0, 1)),
            error_of(lambda: driver.read_range("d/k/below", 0, 1)),
            error_of(lambda: driver.read_range("d/k", 10, 3)),
            error_of(lambda: driver.stat("none")),
            error_of(lambda: driver.stat("d/k/below")),
            error_of(lambda: missing.list_objects("", "")),
            error_of(lambda: down.stat("d/k")),
            error_of(lambda: driver.write_index("k", b"x", "a/b", {}, False)),
            error_of(lambda: driver.begin_data("k", "a/b", {})),
            error_of(lambda: driver.delete(["d/k"])),
        ]))
    """
    assert run(program, libhdfs, minihdfs.url + root, minihdfs.superuser) == [
        *["ObjectNotFoundError"] * 3,
        "RangeError",
        *["ObjectNotFoundError"] * 3,
        "StoreUnavailableError",
        *["OptionError"] * 3,
    ]
    assert written.read_range("d/k", 0, 12) == b"first,second"


def test_users_are_those_of_the_drivers_and_not_of_the_process(written, libhdfs, minihdfs, root):
    written._connections.get()._raw.set_permission(root, 0o700)
    program = """
        stranger = HdfsDriver(url=sys.argv[1], user="stranger", client="pyarrow", timeout_s=120)
        print(json.dumps([
            driver.stat("i").size_bytes,
            error_of(lambda: stranger.read_range("i", 0, 1)),
            error_of(lambda: list(stranger.list_objects("", ""))),
        ]))
    """
    answer = run(program, libhdfs, minihdfs.url + root, minihdfs.superuser)
    assert answer == [5, "AccessDeniedError", "AccessDeniedError"]


def test_a_forked_child_is_refused_before_it_hangs(written, libhdfs, minihdfs, root):
    program = """
        driver.stat("i")
        read_end, write_end = os.pipe()
        if not os.fork():
            os.write(write_end, error_of(lambda: driver.stat("i")).encode())
            os._exit(0)
        print(json.dumps(os.read(read_end, 100).decode()))
    """
    assert run(program, libhdfs, minihdfs.url + root, minihdfs.superuser) == "OptionError"


def test_what_is_missing_is_said(libhdfs, minihdfs, root, tmp_path):
    program = """
        print(json.dumps(error_of(lambda: driver.stat("i"))))
    """
    for name, value in {"CLASSPATH": "", "ARROW_LIBHDFS_DIR": str(tmp_path)}.items():
        found = run(program, libhdfs | {name: value}, minihdfs.url + root, minihdfs.superuser)
        assert found == "OptionError", name


@pytest.mark.parametrize("name", ["config_dir", "kerberos_principal", "kerberos_keytab"])
def test_options_that_it_cannot_honour_are_refused(name):
    with pytest.raises(OptionError, match=name):
        HdfsDriver(url="hdfs://n/a", client="pyarrow", **{name: "x"})


def test_it_declares_no_create_only_writes():
    assert not HdfsDriver(url="hdfs://n/a", client="pyarrow").describe().capabilities.create_only
