"""Crashes: a child process that dies at the k-th call of the operating system, for every k."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import dying
import pytest

from offload_drivers.local import LocalDriver
from offload_hooks import Upload

pytestmark = pytest.mark.long

OLD, NEW = b"old bytes, rather long", b"new bytes"
OLD_METADATA, NEW_METADATA = {"which": "old"}, {"which": "new"}
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(dying.__file__).parent)}

# Forks a child for one of `every` k (the last arguments are the first one and `every`): in it the k-th call of any
# function that changes the file system ends the process at once ("before" it acts or "after"). Prints, for each k, what
# the parent found in the root afterwards.
PROLOGUE = """
    import json, os, shutil, sys
    from dying import die_at, in_fork
    from offload_drivers.local import LocalDriver
    from offload_hooks import Upload

    CALLS = ["open", "pwrite", "fsync", "replace", "rename", "link", "mkdir", "unlink", "ftruncate"]
    OLD, NEW = b"old bytes, rather long", b"new bytes"

    def attempt(root, k, when, act):
        def work():
            driver = LocalDriver(root)
            die_at(k, when, *((os, name) for name in CALLS))
            act(driver)
        return in_fork(work)

    def look(root):
        driver = LocalDriver(root)
        try:
            stat = driver.stat("d/k")
        except FileNotFoundError:
            return None
        data = bytes(driver.read_range("d/k", 0, stat.size_bytes)).decode()
        assert [found.key for found in driver.list_objects("", "")] == ["d/k"]
        return [data, dict(stat.user_metadata)]

    def results(base, prepare, act):
        for when in ("before", "after"):
            for k in range(int(sys.argv[-2]), 200, int(sys.argv[-1])):
                root = f"{base}/{when}-{k}"
                prepare(LocalDriver(root))
                code = attempt(root, k, when, act)
                yield root, code
                if code == 0:
                    break
            else:
                raise AssertionError("it never came to its end")
"""


@pytest.fixture
def numbers(sample):
    """The numbers of the calls at which a child dies."""
    return sample(range(1, 200), 10)


def run(body, numbers, *args):
    code = textwrap.dedent(PROLOGUE) + textwrap.dedent(body)
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, args), str(numbers[0]), str(numbers.step)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


REPLACE = """
    had_old = sys.argv[2] == "True"

    def prepare(driver):
        if had_old:
            driver.write_index("d/k", OLD, "old/type", {"which": "old"}, False)

    def act(driver):
        upload = driver.begin_data("d/k", "new/type", {"which": "new"})
        last, first = driver.write_block(upload, 2, 4, NEW[4:]), driver.write_block(upload, 1, 0, NEW[:4])
        driver.commit_data(upload, [first, last], False)

    for root, code in results(sys.argv[1], prepare, act):
        found = look(root)
        uploads = list(LocalDriver(root).list_uploads("")) if os.path.isdir(root) else []
        stale = [{"key": u.upload.key, "upload_id": u.upload.upload_id} for u in uploads]
        print(json.dumps({"root": root, "code": code, "found": found, "stale": stale}))
"""


@pytest.mark.parametrize("had_old", [True, False])
def test_a_crash_at_any_step_leaves_the_old_object_or_the_new_one_with_its_metadata(
    tmp_path, had_old, numbers
):
    old = [OLD.decode(), OLD_METADATA] if had_old else None
    new = [NEW.decode(), NEW_METADATA]
    results = run(REPLACE, numbers, tmp_path, had_old)
    assert len(results) > 40 // numbers.step
    assert {result["code"] for result in results} == {0, 77}
    for result in results:
        assert result["found"] in (old, new), result
        if result["code"] == 0:
            assert result["found"] == new
            assert result["stale"] == []
    assert [result["found"] for result in results].count(old) > 20 // numbers.step
    for result in results:  # before a call there is what was there after the one before
        _delete(result) if "before-" in result["root"] else _tidy_and_retry(result)


def _delete(result):
    """Nothing of the key is left."""
    driver = LocalDriver(result["root"])
    for stale in result["stale"]:
        driver.abort_data(Upload(**stale))
    assert driver.delete(["d/k"]) == 1
    left = {path.name for path in Path(result["root"]).rglob("*") if path.is_file()}
    assert {name for name in left if not name.endswith(".json.tmp")} <= {"lock"}


def _tidy_and_retry(result):
    """What is left can be dropped without harm, and the next attempt succeeds and leaves nothing behind."""
    driver = LocalDriver(result["root"])
    for stale in result["stale"]:
        assert driver.abort_data(Upload(**stale)) is True
    if result["found"] is not None:
        data, metadata = result["found"]
        stat = driver.stat("d/k")
        assert (dict(stat.user_metadata), stat.size_bytes) == (metadata, len(data))
    driver.write_index("d/k", b"again", "x/y", {"which": "again"}, False)
    assert driver.stat("d/k").user_metadata == {"which": "again"}
    assert driver.read_range("d/k", 0, 5) == b"again"
    assert driver.delete(["d/k"]) == 1


RESUME = """
    def prepare(driver):
        driver.write_index("d/k", OLD, "old/type", {"which": "old"}, False)
        upload = driver.begin_data("d/k", "new/type", {"which": "new"})
        prepare.upload, prepare.receipts = upload, [driver.write_block(upload, 1, 0, NEW)]

    def act(driver):
        driver.commit_data(prepare.upload, prepare.receipts, False)

    for root, code in results(sys.argv[1], prepare, act):
        first = look(root)
        try:
            LocalDriver(root).commit_data(prepare.upload, prepare.receipts, False)
        except Exception as error:
            again = type(error).__name__
        else:
            again = "committed"
        print(json.dumps({"first": first, "again": again, "found": look(root)}))
"""


def test_a_commit_that_crashed_can_be_made_again(tmp_path, numbers):
    old, new = [OLD.decode(), OLD_METADATA], [NEW.decode(), NEW_METADATA]
    for result in run(RESUME, numbers, tmp_path):
        assert result["first"] in (old, new)
        assert result["found"] == new
        assert result["again"] == ("UploadError" if result["first"] == new else "committed")


DELETE = """
    def prepare(driver):
        driver.write_index("d/k", OLD, "old/type", {"which": "old"}, False)

    def act(driver):
        driver.delete(["d/k"])

    for root, code in results(sys.argv[1], prepare, act):
        first = look(root)
        LocalDriver(root).delete(["d/k"])
        left = sorted(os.listdir(f"{root}/d"))
        print(json.dumps({"code": code, "first": first, "left": left}))
"""


def test_a_crash_while_deleting_leaves_the_object_with_its_metadata_or_none(tmp_path):
    results = run(DELETE, range(1, 200), tmp_path)
    for result in results:
        assert result["first"] in ([OLD.decode(), OLD_METADATA], None)
        assert result["left"] == []
    assert {str(result["first"]) for result in results if result["code"] == 77} >= {"None"}


ERRORS = """
    import errno

    def prepare(driver):
        driver.write_index("d/k", OLD, "old/type", {"which": "old"}, False)

    root = sys.argv[1]
    prepare(LocalDriver(root))
    real = {name: getattr(os, name) for name in CALLS}
    done = False
    k = 0
    while not done:
        k += 1
        count = 0
        def wrap(name):
            def call(*args, **kwargs):
                global count
                count += 1
                if count == k:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                return real[name](*args, **kwargs)
            return call
        for name in CALLS:
            setattr(os, name, wrap(name))
        try:
            LocalDriver(root).write_index("d/k", NEW, "new/type", {"which": "new"}, False)
            error = None
            done = count < k
        except Exception as raised:
            error = type(raised).__name__
        for name in CALLS:
            setattr(os, name, real[name])
        print(json.dumps({"error": error, "found": look(root)}))
        prepare(LocalDriver(root))
"""


def test_an_error_at_any_step_leaves_the_old_object_or_the_new_one_with_its_metadata(tmp_path):
    results = run(ERRORS, range(1, 200), tmp_path / "root")
    assert len(results) > 20
    for result in results:
        assert result["found"] in ([OLD.decode(), OLD_METADATA], [NEW.decode(), NEW_METADATA]), result
        assert result["error"] in (None, "StoreError")
    assert results[-1] == {"error": None, "found": [NEW.decode(), NEW_METADATA]}


WRITER = """
    driver = LocalDriver(sys.argv[1])
    upload = driver.begin_data("d/k", "new/type", {"which": "new"})
    part = 0
    while True:
        part += 1
        driver.write_block(upload, part, (part - 1) * 65536, bytes(65536))
        if part == 20:
            print(json.dumps({"key": upload.key, "upload_id": upload.upload_id}), flush=True)
"""


def test_a_writer_that_is_killed_leaves_an_upload_and_nothing_visible(tmp_path):
    root = tmp_path / "root"
    code = textwrap.dedent(PROLOGUE) + textwrap.dedent(WRITER)
    with subprocess.Popen(
        [sys.executable, "-c", code, str(root)], stdout=subprocess.PIPE, env=ENVIRONMENT
    ) as writer:
        upload = Upload(**json.loads(writer.stdout.readline()))
        writer.kill()
    driver = LocalDriver(str(root))
    assert list(driver.list_objects("", "")) == []
    assert [stale.upload for stale in driver.list_uploads("d/")] == [upload]
    driver.write_index("d/k", b"another", "x/y", {}, True)
    assert driver.abort_data(upload) is True
    assert driver.read_range("d/k", 0, 7) == b"another"
    left = {path.name for path in root.joinpath(".offload-uploads").iterdir()}
    assert left == {"lock"}
