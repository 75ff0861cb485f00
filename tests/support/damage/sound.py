"""Sound scenes by name: in these a verifier finds nothing."""

from __future__ import annotations

from collections.abc import Callable

from damage.other_entries import plain_entries, without_checksums
from damage.scenes import (
    Scene,
    filtered,
    filtered_segments,
    mapfiles,
    pip17,
    streaming,
    trimmed,
    with_directory,
)
from damage.sealed import sealed
from offload_core.format.codec.mapfile.sequence_file import FileCompression

SCENES: dict[str, Callable[[], Scene]] = {
    "empty": Scene,
    "pip17": pip17,
    "pip17-without-records": lambda: pip17(records=False),
    "pip17-hot-copy-gone": lambda: pip17(gone=True),
    "directory": with_directory,
    "streaming": streaming,
    "streaming-without-records": lambda: streaming(records=False),
    "streaming-hot-copy-gone": lambda: streaming(gone=True),
    "streaming-trimmed-without-records": trimmed,
    "mapfile-record": mapfiles,
    "mapfile-block": lambda: mapfiles(FileCompression.BLOCK),
    "mapfile-plain": lambda: mapfiles(FileCompression.NONE),
    "mapfile-without-checksums": lambda: mapfiles(checksums=False, records=False),
    "filtered": filtered,
    "filtered-segments": filtered_segments,
    "filtered-segments-without-records": lambda: filtered_segments(records=False),
    "plain-entries": plain_entries,
    "no-checksums": without_checksums,
    "pip17-sealed": lambda: sealed(pip17()),
    "directory-sealed": lambda: sealed(with_directory()),
    "streaming-sealed": lambda: sealed(streaming()),
    "mapfile-sealed": lambda: sealed(mapfiles()),
    "mapfile-block-sealed": lambda: sealed(mapfiles(FileCompression.BLOCK, checksums=False)),
    "filtered-sealed": lambda: sealed(filtered()),
    "filtered-segments-sealed": lambda: sealed(filtered_segments()),
}
