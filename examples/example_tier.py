"""An example tier: what a Pulsar 4.0.8 broker offloaded to S3, laid out in a folder, byte for byte.

`python examples/example_tier.py FOLDER` lays out all of it, and beside it the schemas that the broker had.
`--through 27` leaves out ledgers of greater ids, as if they were not offloaded yet; called again without, it adds them.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pulsar_offload import Tier, open_tier

_BROKER = Path(__file__).resolve().parents[1] / "tests" / "golden" / "broker" / "s3"
_OFFLOADED_AT_S = 1_795_215_900
"""2026-11-20 23:05:00Z, some moments after the broker's last message."""


def main() -> None:
    """Lay out the tier that the command line names."""
    about, _, more = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(description=about, epilog=more)
    parser.add_argument(
        "folder", type=Path, help="made if it does not exist; objects that it has stay as they are"
    )
    parser.add_argument(
        "--through", type=int, metavar="LEDGER", help="the greatest id of a ledger; all if not given"
    )
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    with open_tier(given.folder) as opened:
        present = {each.key for each in opened.store.list_objects()}
        count = lay_out(
            opened.store,
            lambda stored: (
                stored["key"] not in present and (given.through is None or _ledger(stored) <= given.through)
            ),
        )
    for path in given.folder.iterdir():
        os.utime(path, (_OFFLOADED_AT_S, _OFFLOADED_AT_S))
    save_schemas(given.folder / "schemas")
    print(f"{count} objects, byte for byte as the broker wrote them, in {given.folder}")


def lay_out(tier: Tier, wanted: Callable[[Mapping[str, Any]], bool] = lambda _: True) -> int:
    """Write the broker's objects, or those that are wanted, with the user metadata they had in S3; their number."""
    listing = [each for each in json.loads((_BROKER / "objects.json").read_text()) if wanted(each)]
    for stored in listing:
        data = gzip.decompress((_BROKER / "objects" / f"{stored['key']}.gz").read_bytes())
        about = {"content_type": stored["content_type"], "user_metadata": stored["metadata"]}
        if stored["metadata"]["role"] == "data":
            upload = tier.begin_data(stored["key"], **about)
            tier.commit_data(upload, [tier.write_block(upload, 1, 0, data)], create_only=True)
        else:
            tier.write_index(stored["key"], data, **about, create_only=True)
    return len(listing)


def save_schemas(folder: Path) -> None:
    """Save what the broker's admin REST answered of each topic's schemas, as `offload schemas pull` names it."""
    for answer in _BROKER.glob("topics/*/schemas.json"):
        saved = folder / "acme" / "cold" / f"{answer.parent.name}.schemas.json"
        saved.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(answer, saved)


def _ledger(stored: Mapping[str, Any]) -> int:
    return int(stored["key"].removesuffix("-index").rpartition("-")[2])


if __name__ == "__main__":
    main()
