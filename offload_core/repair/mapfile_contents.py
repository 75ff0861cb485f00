"""What the data file of a MapFile still holds, as `contents` has it of objects of blocks."""

from __future__ import annotations

from dataclasses import dataclass

from offload_core.codec.object_format import ObjectKey
from offload_core.repair.contents import (
    Contents,
    Expected,
    FoundEntry,
    LedgerContents,
    settle,
)
from offload_core.repair.evidence import Verdict
from offload_core.repair.identify import identify, is_kept
from offload_core.repair.mapfile_scan import MapFileScan
from offload_core.repair.object_bytes import ObjectBytes


@dataclass(slots=True, kw_only=True)
class MapFileContents:
    """The contents, and the scan that knows the file's header, records and metadata."""

    contents: Contents
    scan: MapFileScan


def read_mapfile_contents(data: ObjectBytes, key: ObjectKey, expected: Expected) -> MapFileContents:
    """Walk a MapFile's data file.

    Raises:
        StoreError: the tier fails.
    """
    assert key.ledger_id is not None
    scan = MapFileScan(data)
    stop = expected.stop
    if scan.metadata is not None and scan.metadata.last_entry_id is not None:
        stop = max(stop or 0, scan.metadata.last_entry_id + 1)
    ledger = LedgerContents(ledger_id=key.ledger_id)
    found = identify(scan.frames, 0, stop, ends_well=scan.ends_well, gaps=False)
    for frame in found:
        if is_kept(frame):
            ledger.entries.append(FoundEntry(frame.entry_id, frame.offset, frame.length, frame.size or 0))
        elif frame.verdict is Verdict.UNSURE:
            ledger.unsure.append(frame.entry_id)
        else:
            ledger.damaged.append(frame.entry_id)
    settle(ledger, Expected(first=0, stop=stop), key, lambda e: scan.payload(e.offset, e.length))
    whole = [frame.entry_id for frame in scan.frames] == [frame.entry_id for frame in found]
    is_clean = scan.is_clean and scan.metadata is not None and whole and not ledger.damaged
    return MapFileContents(
        contents=Contents(
            ledgers=[ledger], is_clean=is_clean, payload=lambda e: scan.payload(e.offset, e.length)
        ),
        scan=scan,
    )
