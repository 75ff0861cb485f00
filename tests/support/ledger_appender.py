"""A process that appends to a ledger by several threads until it is killed: `python ledger_appender.py FOLDER SYNC`.

Prints `ledger ID`, and then `id thread number` for each entry that was acknowledged; the entry holds the latter two.
With a third argument, `step`, it appends one entry for each line that it reads, and prints its id or the error's name.
"""

from __future__ import annotations

import os
import sys
import threading

from offload_core.storage.hot import FileLedgerStore, FileLedgerWriter
from offload_hooks.errors import OffloadError

THREADS = 4


def entry(thread: int, number: int) -> bytes:
    """An entry that is known again; of 10 to some 2,000 bytes."""
    return b"%d %d " % (thread, number) + bytes([thread]) * (number * 97 % 2000)


def run(writer: FileLedgerWriter, thread: int) -> None:
    """Append one by one, and some as batches."""
    number = 0
    while True:
        count = 3 if number % 10 == 0 else 1
        first = writer.append_batch([entry(thread, number + i) for i in range(count)])
        lines = [f"{first + i} {thread} {number + i}\n" for i in range(count)]
        os.write(1, "".join(lines).encode())  # a short write to a pipe is atomic
        number += count


def step(writer: FileLedgerWriter) -> None:
    """Append an entry for each line of the input."""
    for line in sys.stdin:
        try:
            print(writer.append(line.encode()), flush=True)
        except OffloadError as error:
            print(type(error).__name__, flush=True)


def main() -> None:
    """See the module."""
    store = FileLedgerStore(sys.argv[1], sync=sys.argv[2], sync_interval_s=0.02)
    writer = store.create({})
    print(f"ledger {writer.ledger_id}", flush=True)
    if sys.argv[3:] == ["step"]:
        step(writer)
        return
    threads = [threading.Thread(target=run, args=(writer, i)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
