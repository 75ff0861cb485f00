"""A process that offloads a ledger and stops in the middle, until it reads a line.

`python offloading_process.py FOLDER LEDGER LEASE_S` prints `at it` when a block is built, reads a line, goes on, and
prints `done`, or the error's name.
"""

import sys
from pathlib import Path

from managed_ledgers import NAME, offloads_of

from offload_core.metadata.catalogue.known_tiers import KnownTiers
from offload_core.metadata.stores.sqlite import SqliteStore
from offload_core.storage.clock import system_now_ms
from offload_core.storage.hot import FileLedgerStore
from offload_core.storage.tier import Tier
from offload_core.writing.offload.running_attempt import DEFAULT_LEASE_S, THIS_PROCESS
from offload_drivers.local import LocalDriver
from offload_hooks.errors import OffloadError


def tiers_in(folder):
    """The cold tier of a folder."""
    (folder / "cold").mkdir(exist_ok=True)
    return KnownTiers(Tier(LocalDriver(str(folder / "cold")), []))


def offloads_in(folder, lease_s=DEFAULT_LEASE_S, now_ms=system_now_ms, process=THIS_PROCESS):
    """Records, hot tier and tier of a folder that several processes share."""
    metadata = SqliteStore(f"sqlite:{folder}/records.db", create=True)
    hot = FileLedgerStore(folder / "hot", sync="never")
    return offloads_of(metadata, hot, tiers_in(folder), lease_s=lease_s, now_ms=now_ms, process=process)


def main():
    """See the module."""
    folder, ledger_id, lease_s = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])

    def listen(progress):
        if progress.blocks == 1:
            print("at it", flush=True)
            sys.stdin.readline()

    try:
        offloads_in(folder, lease_s).offload(NAME, ledger_id, listener=listen)
        print("done", flush=True)
    except OffloadError as error:
        print(type(error).__name__, flush=True)


if __name__ == "__main__":
    main()
