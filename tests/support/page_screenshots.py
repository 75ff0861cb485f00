"""The screenshots of docs/report.md: `PYTHONPATH=tests/support python -m page_screenshots docs/images`.

A tier of made-up topics over a year, with records, something wrong in it, and a segment; light and dark.
"""

from __future__ import annotations

import random
import sys
import tempfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from chromium import Chromium
from entries import entry, pip17_object
from records import closed_ledger, copied, managed_ledger
from tiers import Names, lay_out, uuid_of

from offload_core.maintenance.inventory.report_contents import gather
from offload_core.maintenance.inventory.report_page import report_page
from offload_core.maintenance.verify import Verification
from offload_core.metadata.catalogue import open_records
from offload_core.metadata.records import ManagedLedgerInfo
from pulsar_offload import open_tier

NOW = datetime(2026, 11, 20, 9, tzinfo=UTC)
TOPICS = (
    "shop/web/orders",
    "shop/web/clicks",
    "shop/web/payments",
    "fleet/cars/positions",
    "fleet/cars/alarms",
)
SHOTS = ((("topics", "times"), "light", "report-light"), (("map", "problems"), "dark", "report-dark"))
WIDTH = 1100


def lay_out_topics(root: Path) -> dict[str, ManagedLedgerInfo]:
    """A year of ledgers into the tier; the topics' records."""
    chance = random.Random(5)
    records = {}
    for number, topic in enumerate(TOPICS):
        tenant, namespace, name = topic.split("/")
        names = Names(managed_ledger=f"{tenant}/{namespace}/persistent/{name}")
        ledgers = []
        for month in range(12):
            ledger_id = 100 * number + month
            payloads = [
                entry(chance.randbytes(2_000))
                for _ in range(chance.randrange(20, 60 + 12 * month) // (number + 1))
            ]
            written = pip17_object(payloads, ledger_id=ledger_id)
            at = NOW - timedelta(days=30 * (11 - month) + number)
            ledger = closed_ledger(ledger_id, payloads)
            if month == 11:
                ledgers.append(ledger)
                continue
            parts = ("data",) if (number, month) == (1, 4) else ("data", "index")
            lay_out(root, written, attempt=ledger_id, names=names, modified_at=at, parts=parts)
            context = copied(uuid_of(ledger_id), bookkeeper_deleted=month < 9)
            ledgers.append(replace(ledger, context=context))
        records[f"persistent://{topic}"] = managed_ledger(*ledgers)
    return records


def main() -> None:
    """Take them."""
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "tier"
        root.mkdir()
        records = lay_out_topics(root)
        with open_tier(root) as tier:
            verification = Verification(tier.store, records=lambda: open_records(records, tier.store, {}))
            data = gather(
                tier.catalogue(records=records), "s3://bucket/prefix", findings=verification, now=NOW
            )
        page = Path(folder) / "report.html"
        page.write_text(report_page(data).html)
        with Chromium(Path(folder)) as browser:
            for (first, last), scheme, name in SHOTS:
                browser.prefer(scheme)
                browser.resize(WIDTH, 900)
                browser.open(page.as_uri())
                top, bottom = browser.evaluate(
                    f"[document.querySelector('#{first}').getBoundingClientRect().top, "
                    f"document.querySelector('#{last}').getBoundingClientRect().bottom]"
                )
                clip = {"x": 0, "y": top - 8, "width": WIDTH, "height": bottom - top + 16, "scale": 0.75}
                shot = browser.screenshot(format="webp", quality=80, clip=clip, captureBeyondViewport=True)
                (target / f"{name}.webp").write_bytes(shot)
                print(name, len(shot))
                assert not browser.errors, browser.errors


if __name__ == "__main__":
    main()
