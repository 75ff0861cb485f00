"""What the page is told: states of ledgers, what is left out, times and sizes; and that it stays small."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from entries import LedgerPart, entry, pip17_object, streaming_object
from records import MANAGED_LEDGERS
from tiers import MemoryDriver, Names, lay_out, lay_out_broker_objects, numbered

from offload_core.maintenance.inventory.report_contents import MOST_FINDINGS, gather
from offload_core.maintenance.inventory.report_page import embedded, live_page, report_page
from offload_core.maintenance.verify import Code, Finding
from offload_core.storage.tier import Tier
from offload_hooks.errors import OptionError
from pulsar_offload import TierReader, open_tier

PAYLOADS = [entry(b"%05d" % i * 100) for i in range(20)]
BEGIN = datetime(2024, 5, 1, 12, tzinfo=UTC)
NOW = datetime(2024, 8, 1, tzinfo=UTC)


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
    assert whole["rest"] is None
    assert [row["name"][-2:] for row in part["topics"]] == ["t4", "t3"]
    assert part["rest"]["name"] == "3 more topics"
    assert part["rest"]["bytes"] == sum(row["bytes"] for row in whole["topics"][2:])
    assert [each["name"] for each in part["times"]["series"]][-1] == "all others"
    assert part["times"]["growth"] == whole["times"]["growth"] == [whole["totals"]["bytes"]]
    with pytest.raises(OptionError):
        told(tmp_path, top=0)


@pytest.mark.parametrize(
    ("days", "step", "steps"),
    [(30, "day", ["2024-05-01", "2024-05-31"]), (80, "month", ["2024-05", "2024-07"])],
)
def test_bars_are_of_days_or_months(tmp_path, days, step, steps):
    for i, at in enumerate((BEGIN, BEGIN + timedelta(days=days))):
        lay_out(tmp_path, pip17_object(PAYLOADS, ledger_id=i), attempt=i, modified_at=at)
    times = told(tmp_path)["times"]
    assert (times["step"], times["steps"]) == (step, steps)
    (series,) = times["series"]
    assert times["growth"] == [series["bytes"][0], sum(series["bytes"])]


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
    larger = pip17_object([entry(b"x" * 70_000)], ledger_id=8)
    lay_out(tmp_path, pip17_object(PAYLOADS), attempt=1, modified_at=NOW - timedelta(hours=1))
    lay_out(tmp_path, larger, attempt=2, modified_at=NOW - timedelta(days=400))
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
    assert len(page["topics"]) == 20
    assert max(len(row["pieces"]) for row in page["map"]) == 200
    assert max(row["left_out"] for row in page["map"]) == 250
    assert len(embedded(page)) < 200_000
    assert len(report_page(page).html) < 6_000_000


def test_nothing_in_the_data_can_end_its_block():
    data = {"tier": "</script><!--<script>", "more": "\u2028&{{plotly}}"}
    text = embedded(data)
    assert not {"<", ">", "&"}.intersection(text)
    assert json.loads(text) == data
    assert live_page().html.count("</script>") == 3
