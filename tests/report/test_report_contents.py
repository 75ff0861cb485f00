"""What the page is told: states of ledgers, what is left out, times and sizes; and that it stays small."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from entries import PUBLISH_TIME_MS, LedgerPart, entry, ledger_metadata, pip17_object, streaming_object
from records import MANAGED_LEDGERS, closed_ledger, copied, managed_ledger
from tiers import TOPIC, MemoryDriver, Names, lay_out, lay_out_broker_objects, numbered, uuid_of

from offload_core.maintenance.inventory.report_contents import (
    MOST_EXTENTS,
    MOST_EXTENTS_IN_ALL,
    MOST_FINDINGS,
    MOST_SERIES,
    gather,
)
from offload_core.maintenance.inventory.report_page import embedded, live_page, report_page
from offload_core.maintenance.verify import Code, Finding
from offload_core.storage.tier import Tier
from offload_hooks.errors import OptionError
from pulsar_offload import TierReader, open_tier

PAYLOADS = [entry(b"%05d" % i * 100) for i in range(20)]
BEGIN = datetime(2024, 5, 1, 12, tzinfo=UTC)
NOW = datetime(2024, 8, 1, tzinfo=UTC)


def opened(at, ledger_id=7):
    """An object of a ledger that was opened at a time."""
    metadata = ledger_metadata(PAYLOADS, ctime_ms=int(at.timestamp() * 1000))
    return pip17_object(PAYLOADS, ledger_id=ledger_id, metadata=metadata)


def told(root, **options):
    with open_tier(root) as tier:
        return gather(tier.catalogue(records=options.pop("records", None)), "here", now=NOW, **options)


def test_ledgers_are_cold_in_both_places_or_hot_only(tmp_path):
    lay_out_broker_objects(tmp_path)
    by_listing, by_records = told(tmp_path), told(tmp_path, records=MANAGED_LEDGERS)
    assert {piece["state"] for row in by_listing["map"] for piece in row["pieces"]} == {"cold"}
    states = {row["name"].rpartition("/")[2]: row["states"] for row in by_records["topics"]}
    assert states["nobatch"]["cold"] > 0 == states["nobatch"]["both"]
    assert states["json"]["both"] > 0 == states["json"]["cold"]
    assert states["chunk"]["hot"] > 0 == states["chunk"]["cold"] + states["chunk"]["both"]
    assert by_records["totals"]["bytes"] == by_listing["totals"]["bytes"] > 19_000_000


def test_the_largest_topics_are_told_one_by_one(tmp_path):
    for i in range(5):
        names = Names(managed_ledger=f"acme/cold/persistent/t{i}")
        lay_out(tmp_path, pip17_object(PAYLOADS[: 4 * (i + 1)], ledger_id=i), attempt=i, names=names)
    whole, part = told(tmp_path), told(tmp_path, top=2)
    assert [row["name"][-2:] for row in whole["topics"]] == ["t4", "t3", "t2", "t1", "t0"]
    *largest, rest = part["topics"]
    assert [row["name"][-2:] for row in largest] == ["t4", "t3"]
    assert (rest["name"], rest["ledgers"], rest["oldest"]) == ("3 more topics", 3, "2023-11-14")
    assert rest["bytes"] == sum(row["bytes"] for row in whole["topics"][2:])
    assert [each["name"] for each in part["times"]["series"]][-1] == "all others"
    assert part["times"]["growth"] == whole["times"]["growth"] == [whole["totals"]["bytes"]]
    with pytest.raises(OptionError):
        told(tmp_path, top=0)


@pytest.mark.parametrize(
    ("days", "step", "steps"),
    [
        (3, "day", ["2024-05-01", "2024-05-02", "2024-05-03", "2024-05-04"]),
        (80, "month", ["2024-05", "2024-06", "2024-07"]),
        (-1500, "year", ["2020", "2021", "2022", "2023", "2024"]),
    ],
)
def test_bars_are_of_days_months_or_years_without_gaps(tmp_path, days, step, steps):
    for i, at in enumerate((BEGIN, BEGIN + timedelta(days=days))):
        lay_out(tmp_path, opened(at, ledger_id=i), attempt=i)
    times = told(tmp_path)["times"]
    assert (times["step"], times["steps"]) == (step, steps)
    (series,) = times["series"]
    first, *between, last = series["bytes"]
    assert first == last > 0 == sum(between)
    assert times["growth"] == [first] * (len(steps) - 1) + [2 * first]


def test_times_are_the_ledgers_own_whenever_their_objects_were_copied(tmp_path):
    for month in range(3):
        at = BEGIN + timedelta(days=35 * month)
        lay_out(tmp_path, opened(at, ledger_id=month), attempt=month, modified_at=NOW)
    page = told(tmp_path)
    (series,) = page["times"]["series"]
    assert len(set(series["bytes"])) == 1
    assert page["times"]["steps"] == ["2024-05", "2024-06", "2024-07"]
    (row,) = page["topics"]
    assert (row["oldest"], row["newest"]) == ("2024-05-01", "2024-07-10")
    assert [bin_["copies"] for bin_ in page["ages"]] == [0, 0, 1, 1, 1, 0]
    assert [piece["at"] for piece in page["map"][0]["pieces"]] == ["2024-05-01", "2024-06-05", "2024-07-10"]


def test_a_record_has_the_time_at_which_its_ledger_was_closed(tmp_path):
    lay_out(tmp_path, pip17_object(PAYLOADS), attempt=1, modified_at=NOW)
    records = {TOPIC: managed_ledger(closed_ledger(7, PAYLOADS, copied(uuid_of(1))))}
    assert told(tmp_path, records=records)["times"]["steps"] == ["2023-11-14"]


@pytest.mark.parametrize("at", [datetime(1970, 1, 2, tzinfo=UTC), NOW + timedelta(days=1)])
def test_a_ledgers_time_that_cannot_be_is_not_taken(tmp_path, at):
    lay_out(tmp_path, opened(at), attempt=1, modified_at=BEGIN)
    assert told(tmp_path)["times"]["steps"] == ["2024-05-01"]


def test_so_many_topics_have_a_colour_as_can_be_told_apart(tmp_path):
    for i in range(MOST_SERIES + 3):
        names = Names(managed_ledger=f"acme/cold/persistent/t{i}")
        lay_out(tmp_path, pip17_object(PAYLOADS, ledger_id=i), attempt=i, names=names)
    lay_out(tmp_path, pip17_object(PAYLOADS, ledger_id=99), attempt=99, names=Names(managed_ledger=None))
    series = told(tmp_path)["times"]["series"]
    assert len(series) <= MOST_SERIES + 2
    assert series[MOST_SERIES]["name"] == "all others"
    assert sum(series[MOST_SERIES]["bytes"]) >= 3 * sum(series[0]["bytes"])


def test_pieces_of_segments_and_what_cannot_be_read(tmp_path):
    parts = [LedgerPart(ledger_id=2**60 + number, blocks=[PAYLOADS[:3]]) for number in (1, 2)]
    lay_out(tmp_path, streaming_object(parts), attempt=1)
    lay_out(tmp_path, pip17_object(PAYLOADS, ledger_id=5), attempt=2, parts=("data",))
    page = told(tmp_path)
    (row,) = page["map"]
    pieces = [(piece["ledger"], piece["state"], piece["format"]) for piece in row["pieces"]]
    assert pieces == [
        ("5", "problem", None),
        (str(2**60 + 1), "cold", "streaming"),
        (str(2**60 + 2), "cold", "streaming"),
    ]
    assert "index" in row["pieces"][0]["why"]
    (stored,) = tmp_path.glob("*ledger-5")
    assert row["pieces"][0]["bytes"] == stored.stat().st_size
    assert page["topics"][0]["states"]["problem"] == stored.stat().st_size
    assert page["topics"][0]["states"]["cold"] > 0
    assert page["totals"]["copies"] == 2
    assert page["problems"]["codes"] == [{"code": "no-index", "severity": "error", "count": 1}]


def test_topics_of_two_clusters_are_told_apart(tmp_path):
    for i, cluster in enumerate(("east", "west")):
        lay_out(tmp_path, pip17_object(PAYLOADS, ledger_id=7), attempt=i, names=Names(cluster=cluster))
    page = told(tmp_path)
    assert sorted(row["name"] for row in page["topics"]) == [
        "persistent://acme/cold/orders (of east)",
        "persistent://acme/cold/orders (of west)",
    ]
    assert {row["topic"] for row in page["map"]} == {row["name"] for row in page["topics"]}


def test_sizes_and_ages(tmp_path):
    payloads = [entry(b"x" * 70_000)]
    old = ledger_metadata(payloads, ctime_ms=PUBLISH_TIME_MS - 400 * 86_400_000)
    lay_out(tmp_path, opened(NOW - timedelta(hours=1)), attempt=1)
    lay_out(tmp_path, pip17_object(payloads, ledger_id=8, metadata=old), attempt=2)
    page = told(tmp_path)
    assert [bin_["copies"] for bin_ in page["sizes"]] == [1, 1, 0, 0, 0, 0]
    assert [bin_["copies"] for bin_ in page["ages"]] == [1, 0, 0, 0, 0, 1]


def test_findings_are_counted_and_shown_in_part(tmp_path):
    findings = (
        Finding(code=Code.MESSAGE_CHECKSUM, what="wrong", key="k", ledger_id=7, entry_id=i, topic="t")
        for i in range(MOST_FINDINGS + 5)
    )
    problems = told(tmp_path, findings=findings)["problems"]
    assert problems["codes"] == [
        {"code": "message.checksum", "severity": "error", "count": MOST_FINDINGS + 5}
    ]
    assert (len(problems["shown"]), problems["left_out"]) == (MOST_FINDINGS, 5)
    assert problems["shown"][3]["place"] == "t, k, ledger 7, entry 3"


def test_the_page_stays_small_whatever_there_is():
    objects = numbered(*(pip17_object(PAYLOADS[:1], ledger_id=i) for i in range(900)))
    metadata = {}
    for key in objects:
        number = max(0, int(key.removesuffix("-index").rpartition("-")[2]) - 449)
        names = Names(managed_ledger=f"acme/cold/persistent/{'x' * 150}{number}")
        metadata[key] = names.as_metadata("data")
    tier = TierReader(Tier(MemoryDriver(objects, more_metadata=metadata)))
    page = gather(tier.catalogue(), "here", now=NOW)
    assert len(page["topics"]) == 21
    assert max(len(row["pieces"]) for row in page["map"]) == MOST_EXTENTS
    assert max(row["left_out"] for row in page["map"]) == 250
    assert len(embedded(page)) < 200_000
    assert len(report_page(page).html) < 250_000


def test_the_largest_page_is_below_one_and_a_half_megabytes(tmp_path):
    name, key = "x" * 60, "0" * 36
    lay_out(tmp_path, pip17_object(PAYLOADS), attempt=1)
    findings = (
        Finding(code=Code.MESSAGE_CHECKSUM, what="w" * 80, key=key, ledger_id=7, entry_id=i, topic=name)
        for i in range(MOST_FINDINGS)
    )
    page = told(tmp_path, findings=findings)
    (row,) = page["map"]
    row["pieces"] *= MOST_EXTENTS_IN_ALL
    assert len(report_page(page).html) < 1_500_000


def test_nothing_in_the_data_can_end_its_block():
    data = {"tier": "</script><!--<script>", "more": "\u2028&{{program}}"}
    text = embedded(data)
    assert not {"<", ">", "&"}.intersection(text)
    assert json.loads(text) == data
    assert live_page(tokens=False).html.count("</script>") == 2
