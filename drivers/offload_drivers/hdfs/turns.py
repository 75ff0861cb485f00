"""Turns: of all that would put an object of one key in place, or delete it, one after another, in whatever process.

A turn begins when the directory of one's folder is renamed to `<hash of the key>.turn`, which fails while another one
has that name, and ends when the folder is removed or renamed away. Nothing waits for a crash to be noticed: who finds
the same holder for some seconds sends its folder home, and may begin.

That the holder was only slow does no harm. All that a holder does is to rename files out of its folder, or into it, by
the folder's path in the turn, which has the holder's id in it. Once the folder is home again, none of those paths
exists, and none ever means somebody else's: the holder finds nothing there, and asks for another turn. So safety
never hangs on a clock.
"""

from __future__ import annotations

import random
import time

from offload_drivers.hdfs.client import Renamed
from offload_drivers.hdfs.uploads import HdfsTier, send_home
from offload_hooks import Upload
from offload_hooks.errors import ObjectNotFoundError, StoreTimeoutError

PATIENCE_S = 5.0
"""How long one holder may keep others waiting; a turn takes a few requests, a tenth of that if they are slow."""

_FIRST_WAIT_S = 0.01
_LONGEST_WAIT_S = 0.25


def take_turn(tier: HdfsTier, key: str, holder: str) -> str | None:
    """Wait for the turn and answer the path of the holder's folder in it; None if the folder is gone."""
    client, turn = tier.client, tier.paths.turn(key)
    folder = f"{turn}/{holder}"
    began = since = time.monotonic()
    seen, wait_s = "", _FIRST_WAIT_S
    while True:
        renamed = client.rename(tier.paths.home(holder), turn)
        if renamed is not Renamed.EXISTS:
            return folder if renamed is Renamed.DONE or client.status(folder) is not None else None
        current, now = _holder(tier, turn), time.monotonic()
        if current == holder:  # since an attempt whose answer was lost
            return folder
        if not current:
            client.remove(turn)
        elif current != seen:
            seen, since = current, now
        elif now - since > PATIENCE_S:
            send_home(tier, turn, current)
            seen = ""
        if now - began > client.deadline_s:
            raise StoreTimeoutError(
                f"cannot have the turn to write in {client.location}: others have it all the time", key=key
            )
        if current:
            time.sleep(wait_s * random.random())  # noqa: S311
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)


def end_turn(tier: HdfsTier, upload: Upload) -> None:
    """Remove the holder's folder with all in it, and the turn, when all is done."""
    turn = tier.paths.turn(upload.key)
    if not tier.client.remove_all(f"{turn}/{upload.upload_id}"):
        tier.client.remove_all(tier.paths.home(upload.upload_id))  # somebody ended the turn before
    tier.client.remove(turn)


def _holder(tier: HdfsTier, turn: str) -> str:
    """The id of the one whose turn it is; empty if there is none."""
    try:
        return next((str(status.path).rpartition("/")[2] for status in tier.client.listing(turn)), "")
    except ObjectNotFoundError:
        return ""
