"""Run by the crash tests of ledger files: children that die at the k-th call of the operating system, for every k.

`python ledger_crashes.py FOLDER SYNC FIRST EVERY` prints a line of JSON for each child: what was acknowledged
before it died, and what its parent found afterwards.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from dying import die_at, in_fork
from ledger_files import all_entries

from offload_core.storage.hot import FileLedgerStore

CALLS = ["open", "pwrite", "pwritev", "fsync", "fdatasync", "rename", "mkdir", "unlink", "ftruncate"]
ENTRIES = [b"entry %d" % i * (i * 40) for i in range(12)]


def act(store: FileLedgerStore, tell: Callable[[str, int], None]) -> None:
    """Write two ledgers, seal one, recover a third, delete one; report each acknowledged step."""
    first, second = store.create({}), store.create({"a": b"b"})
    tell("created", second.ledger_id)
    for i, entry in enumerate(ENTRIES[:4]):
        second.append(entry)
        tell("appended", i + 1)
    second.append_batch(ENTRIES[4:9])
    tell("appended", 9)
    second.sync()
    first.append_batch(ENTRIES)
    first.close()
    tell("sealed", first.ledger_id)
    second.append_batch(ENTRIES[9:])
    tell("appended", 12)
    store.recover(second.ledger_id)
    tell("recovered", second.ledger_id)
    store.delete(first.ledger_id)
    tell("deleted", first.ledger_id)
    store.close()


def ignore(what: str, value: int) -> None:
    """Ignore the entries that `act` acknowledges."""


def child(root: Path, sync: str, number: int, when: str) -> tuple[int, dict[str, int]]:
    """Run `act` in a fork that dies; its exit code, and its last acknowledged step of each kind."""
    read_end, write_end = os.pipe()

    def work() -> None:
        store = FileLedgerStore(root, sync=sync, sync_interval_s=3600)
        die_at(number, when, *((os, name) for name in CALLS))
        act(store, lambda what, value: (os.write(write_end, f"{what} {value}\n".encode()), None)[1])

    code = in_fork(work)
    os.close(write_end)
    with open(read_end) as pipe:
        reported = dict(line.split() for line in pipe)
    return code, {what: int(value) for what, value in reported.items()}


def look(root: Path) -> dict[str, object]:
    """Recover all ledgers; how many entries each has, and the id of a further one."""
    store = FileLedgerStore(root)
    counts = {}
    for ledger_id in store.ledger_ids():
        status = store.recover(ledger_id).status
        entries = all_entries(store.open(ledger_id))
        assert entries == ENTRIES[: len(entries)], ledger_id
        assert store.verify(ledger_id) == status
        counts[ledger_id] = len(entries)
    new = store.create({}).ledger_id
    names = sorted(path.name for path in root.iterdir())
    store.close()
    return {"counts": counts, "new": new, "names": names}


def results(folder: Path, sync: str, first: int, every: int) -> Iterator[dict[str, object]]:
    """A child for one of `every` calls that there are."""
    for when in ("before", "after"):
        for number in range(first, 500, every):
            root = folder / f"{when}-{number}"
            code, reported = child(root, sync, number, when)
            yield {"code": code, "reported": reported, **look(root)}
            if code == 0:
                break


if __name__ == "__main__":
    warm = FileLedgerStore(Path(sys.argv[1]) / "warm")  # so that no child has to load the kernels
    act(warm, ignore)
    for result in results(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])):
        print(json.dumps(result), flush=True)
