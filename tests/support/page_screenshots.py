"""The screenshots of the documentation: `PYTHONPATH=tests/support python -m page_screenshots docs/images`.

A tier of made-up topics over a year, with records and something wrong in it; a service with topics that it offloads.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import page_looks
from chromium import Chromium
from commands import COMMAND
from entries import entry, ledger_metadata, pip17_object
from records import closed_ledger, copied, managed_ledger
from service import DRIVER, EXTRA, Service, offloading, owner
from tiers import Names, lay_out, uuid_of

from offload_core.maintenance.inventory.report_contents import gather
from offload_core.maintenance.inventory.report_page import report_page
from offload_core.maintenance.verify import Verification
from offload_core.metadata.catalogue import open_records
from offload_core.metadata.catalogue.topics import managed_ledger_of_topic, parse_topic
from offload_core.metadata.records import ManagedLedgerInfo
from offload_core.writing.managed_ledger import RolloverPolicy, open_managed_ledger
from pulsar_offload import open_tier

NOW = datetime(2026, 11, 20, 9, tzinfo=UTC)
TOPICS = (
    "shop/web/orders",
    "shop/web/clicks",
    "shop/web/payments",
    "fleet/cars/positions",
    "fleet/cars/alarms",
)
WIDTH, NARROW = 1100, 360


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
            at = NOW - timedelta(days=30 * (11 - month) + number)
            at_ms = int(at.timestamp() * 1000)
            written = pip17_object(
                payloads, ledger_id=ledger_id, metadata=ledger_metadata(payloads, ctime_ms=at_ms)
            )
            ledger = closed_ledger(ledger_id, payloads)
            ledger = replace(ledger, info=replace(ledger.info, timestamp_ms=at_ms))
            if month == 11:
                ledgers.append(ledger)
                continue
            parts = ("data",) if (number, month) == (1, 4) else ("data", "index")
            lay_out(root, written, attempt=ledger_id, names=names, modified_at=NOW, parts=parts)
            context = copied(uuid_of(ledger_id), bookkeeper_deleted=month < 9)
            ledgers.append(replace(ledger, context=context))
        records[f"persistent://{topic}"] = managed_ledger(*ledgers)
    return records


def report_of(root: Path) -> str:
    """The report about such a tier, as HTML."""
    records = lay_out_topics(root)
    with open_tier(root) as tier:
        verification = Verification(tier.store, records=lambda: open_records(records, tier.store, {}))
        catalogue = tier.catalogue(records=records)
        return report_page(gather(catalogue, "s3://bucket/prefix", findings=verification, now=NOW)).html


def offload_some(service: Service, folder: Path) -> None:
    """Topics of which the service offloads one, the command line another, and one cannot be."""
    rollover = RolloverPolicy(max_entries=20, min_age_s=0)
    with owner(service.metadata, folder) as environment:
        for number, topic in enumerate(TOPICS[:4]):
            name = managed_ledger_of_topic(parse_topic(topic))
            with open_managed_ledger(environment, name, rollover=rollover) as opened:
                for i in range(100 + 60 * number):
                    opened.add_entry(b"%d" % i * 500)
    payments = "/admin/v2/persistent/shop/web/payments"
    elsewhere = {DRIVER: "local", EXTRA: {"root": "/dev/null"}}
    assert service.ask("POST", f"{payments}/offloadPolicies", elsewhere).status == 204
    message = {"ledgerId": 2**62, "entryId": -1, "partitionIndex": -1}
    for path in ("/admin/v2/persistent/shop/web/orders", payments):
        assert service.ask("PUT", f"{path}/offload", message).status == 204
    command = [COMMAND, "topics", "offload", "shop/web/clicks", "--config", service.config]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    """Take them."""
    target = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tier").mkdir()
        page = folder / "report.html"
        page.write_text(report_of(folder / "tier"))
        settings = offloading(folder, service="upkeep_interval_s = 3600")
        with Service(folder, settings) as service, Chromium(folder) as browser:
            offload_some(service, folder)

            def take(picture: str, url: str, scheme: str, width: int, first: str, last: str) -> None:
                browser.prefer(scheme)
                browser.resize(width, 900)
                browser.open(url)
                browser.wait_for("!!document.querySelector('.mark.cold[data-tip]')")
                top, bottom = browser.evaluate(
                    f"[document.querySelector('{first}').getBoundingClientRect().top, "
                    f"document.querySelector('{last}').getBoundingClientRect().bottom]"
                )
                shot = page_looks.picture(browser, width, top=max(0, top - 16), bottom=bottom + 16)
                (target / f"{picture}.png").write_bytes(shot)
                print(picture, len(shot))
                assert not browser.errors, browser.errors

            take("report-light", page.as_uri(), "light", WIDTH, "header", "#chart-topics")
            take("report-dark", page.as_uri(), "dark", WIDTH, "#growth", "#chart-map")
            take("report-narrow", page.as_uri(), "light", NARROW, "header", "#chart-topics")
            take("service-light", f"{service.url}/ui", "light", WIDTH, "header", "#table-status-around")
            take("service-dark", f"{service.url}/ui", "dark", NARROW, "header", "#table-status-around")


if __name__ == "__main__":
    main()
