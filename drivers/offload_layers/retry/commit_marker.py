"""How a commit whose outcome is unknown is recognised afterwards: a random mark in the object's user metadata.

A commit that timed out may have happened. When it is made again the driver then says that the upload is gone or that
the object exists: because of us, or of somebody else. Key, size and even content may be the same for both. So each
data object, and each create-only index, gets one more entry of user metadata, random for each call. An object that
carries the entry of this very call was committed by it: that is sure, and nothing else is.
"""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace

from offload_hooks import ObjectStat, Upload
from offload_layers.per_process import PerProcess

MARKER = "offloadcommit"
"""The entry's name: what every store takes as a name of user metadata."""

_MOST_UPLOADS = 10_000  # those that were begun and neither committed nor aborted by this layer


def new_marker() -> str:
    """A value that no other call has."""
    return uuid.uuid4().hex


def marked(user_metadata: Mapping[str, str], marker: str) -> dict[str, str]:
    """User metadata with the mark."""
    return {**user_metadata, MARKER: marker}


def unmarked(stat: ObjectStat) -> ObjectStat:
    """A stat as the writer of the object knows it: without the mark."""
    if MARKER not in stat.user_metadata:
        return stat
    rest = {name: value for name, value in stat.user_metadata.items() if name != MARKER}
    return replace(stat, user_metadata=rest)


class UploadMarkers:
    """The marks of the uploads that this process began; the oldest are forgotten when there are very many."""

    def __init__(self) -> None:
        self._lock = PerProcess(threading.Lock)
        self._markers: OrderedDict[Upload, str] = OrderedDict()

    def remember(self, upload: Upload, marker: str) -> None:
        """Keep an upload's mark."""
        with self._lock.get():
            self._markers[upload] = marker
            while len(self._markers) > _MOST_UPLOADS:
                self._markers.popitem(last=False)

    def of(self, upload: Upload) -> str | None:
        """An upload's mark, None for one that was begun elsewhere."""
        return self._markers.get(upload)

    def forget(self, upload: Upload) -> None:
        """Drop the mark of an upload that is over."""
        with self._lock.get():
            self._markers.pop(upload, None)
