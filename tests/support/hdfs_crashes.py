"""Run by the crash tests of the driver `hdfs`: children that die at the k-th call of the client, for every k.

`python hdfs_crashes.py URL USER WHAT HAD_OLD` prints one line of JSON for each child: what its parent found afterwards,
and whether what it left could be tidied.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from dying import die_at, end_after

from offload_drivers.hdfs import HdfsDriver
from offload_drivers.hdfs import client as hdfs_client
from offload_drivers.hdfs import commit as hdfs_commit
from offload_drivers.hdfs.client import HdfsClient
from offload_hooks import BlockReceipt, Upload
from offload_hooks.errors import UploadError

CALLS = [
    "make_directory",
    "rename",
    "remove",
    "remove_all",
    "set_modified",
    "recover_lease",
    "writer",
    "write",
    "sync",
    "close_writer",
]
OLD, NEW = b"old bytes, rather long", b"new bytes"
KEY = "d/k"
MOST_CALLS = 22
AT_ONCE = 22

hdfs_commit.PATIENCE_S = 0.5  # the next commit waits this long for the rest of a crashed one


# --- the children ----------------------------------------------------------------------------------


def upload(driver: HdfsDriver, *, in_pieces: bool = False) -> tuple[Upload, list[BlockReceipt]]:
    """Upload the new bytes, the second block perhaps by another process."""
    begun = driver.begin_data(KEY, "new/type", {"which": "new"})
    first = driver.write_block(begun, 1, 0, NEW[:4])
    if in_pieces:
        driver.close()
    return begun, [first, driver.write_block(begun, 2, 4, NEW[4:])]


def upload_and_commit(driver: HdfsDriver, _: Path) -> None:
    driver.commit_data(*upload(driver), False)


def prepare_commit(driver: HdfsDriver, note: Path, *, in_pieces: bool = False) -> None:
    prepared = upload(driver, in_pieces=in_pieces)
    driver.close()  # as another process, that now goes on, would find it
    note.write_bytes(pickle.dumps(prepared))


def commit(driver: HdfsDriver, note: Path) -> None:
    driver.commit_data(*pickle.loads(note.read_bytes()), False)


def index(driver: HdfsDriver, _: Path) -> None:
    driver.write_index(KEY, NEW, "new/type", {"which": "new"}, False)


def delete(driver: HdfsDriver, _: Path) -> None:
    driver.delete([KEY])


def nothing(_: HdfsDriver, __: Path) -> None:
    pass


ACTS = {
    "upload": (nothing, upload_and_commit),
    "commit": (prepare_commit, commit),
    "commit pieces": (partial(prepare_commit, in_pieces=True), commit),
    "index": (nothing, index),
    "delete": (nothing, delete),
}


# --- the parent ------------------------------------------------------------------------------------


def look(driver: HdfsDriver) -> list[object] | None:
    """The object's bytes and metadata; None if there is none."""
    listed = [found.key for found in driver.list_objects("", "")]
    try:
        stat = driver.stat(KEY)
    except FileNotFoundError:
        assert listed == [], "what is not there is not listed"
        return None
    assert listed == [KEY]
    return [driver.read_range(KEY, 0, stat.size_bytes).decode(), dict(stat.user_metadata), stat.content_type]


def files(driver: HdfsDriver) -> list[str]:
    """All files under the root, whatever they are."""
    client = driver._connections.get()

    def walk(path: str) -> Iterator[str]:
        for status in list(client.listing(path)):
            if status.isdir:
                yield from walk(status.path)
            else:
                yield status.path

    return list(walk(driver._paths.root))


def judged(driver: HdfsDriver, code: int, note: Path) -> dict[str, object]:
    """Report the objects that exist, repeat the commit if possible, and clean up."""
    report: dict[str, object] = {"code": code, "found": look(driver)}
    stale = [each.upload for each in driver.list_uploads("")]
    report["stale"] = len(stale)
    if note.exists():
        try:
            commit(driver, note)
            report["again"] = "done"
        except UploadError:
            report["again"] = "gone"
        report["after"] = look(driver)
    before = look(driver)
    for each in list(driver.list_uploads("")):
        driver.abort_data(each.upload)
    assert look(driver) == before, "aborting what a crash left does not touch the object"
    assert not list(driver.list_uploads(""))
    driver.write_index(KEY, b"next", "next/type", {"which": "next"}, False)
    assert look(driver) == ["next", {"which": "next"}, "next/type"]
    driver.delete([KEY])
    report["left"] = files(driver)
    return report


def main(url: str, user: str, what: str, had_old: bool) -> None:
    prepare, act = ACTS[what]
    folder = Path(tempfile.mkdtemp())
    numbers = [(when, number) for when in ("before", "after") for number in range(1, MOST_CALLS + 1)]
    drivers = {each: HdfsDriver(url=url, root=f"{each[0]}-{each[1]}", user=user) for each in numbers}
    notes = {(when, number): folder / f"{when}-{number}" for when, number in numbers}

    def make_ready(each: tuple[str, int]) -> None:
        if had_old:
            drivers[each].write_index(KEY, OLD, "old/type", {"which": "old"}, False)
        else:
            drivers[each].write_index("x", b"", "", {}, False)
            drivers[each].delete(["x"])
        prepare(drivers[each], notes[each])

    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(make_ready, numbers))
    codes: dict[tuple[str, int], int] = {}
    waiting, running = list(numbers), {}
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            each = waiting.pop(0)
            child = os.fork()
            if child == 0:
                end_after(partial(_live_and_die, each, partial(act, drivers[each], notes[each])))
            running[child] = each
        child, status = os.wait()
        codes[running.pop(child)] = os.waitstatus_to_exitcode(status)
    with ThreadPoolExecutor(AT_ONCE) as threads:
        reports = threads.map(lambda each: judged(drivers[each], codes[each], notes[each]), numbers)
        for (when, number), report in zip(numbers, reports, strict=True):
            print(json.dumps({"when": when, "number": number, **report}))


def _live_and_die(each: tuple[str, int], act: Callable[[], None]) -> None:
    die_at(each[1], each[0], *((HdfsClient, name) for name in CALLS), (hdfs_client, "_write_file"))
    act()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4] == "True")
