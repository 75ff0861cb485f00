"""`offload cost`: what it shows, the report for machines, and what is refused."""

import re
from dataclasses import replace

import pytest
from records import MANAGED_LEDGERS

from offload_core.storage.tier import Tier


def test_without_prices_there_are_counts_and_no_money(offload, broker):
    result = offload("cost", broker)
    assert result.code == 0
    assert "without --prices there is no money in this: --prices example:aws-s3 has some\n" in result.err
    lines = result.out.splitlines()
    assert lines[0] == "Stored, by topic and month"
    assert " ".join(lines[1].split()) == "topic month copies objects size parts requests to write"
    assert next(line for line in lines if line.startswith("all")).split()[:3] == ["all", "23", "46"]
    assert "One full scan of it, in 1 partition" in lines


@pytest.mark.parametrize("records", [(), ("--records", MANAGED_LEDGERS)], ids=["listing", "records"])
def test_the_report_for_machines(offload, broker, records):
    result = offload("cost", broker, "--prices", "example:aws-s3", "--json", *records)
    assert (result.code, result.err) == (0, "")
    report = result.json
    assert report["version"] == 1
    assert report["prices"] == {
        "name": "AWS S3, us-east-1, first step of list prices",
        "as_of": "2025-06",
        "is_example": True,
        "currency": "USD",
        "class": "STANDARD",
    }
    total = report["total"]
    assert (total["copies"], total["parts"], total["requests_to_write"]) == (23, 25, 25 + 3 * 23)
    assert total["cost_of_writing"] == pytest.approx(94 * 0.005 / 1000)
    stored = total["data_bytes"] + total["other_bytes"]
    assert total["cost_a_month"] == pytest.approx(stored / 2**30 * 0.023)
    assert sum(row["cost_a_month"] for row in report["stored"]) == pytest.approx(total["cost_a_month"])
    scan = report["scan"]
    assert (scan["planning"]["lists"], scan["planning"]["heads"]) == (
        (0, 2 * (23 + 2)) if records else (1, 23)  # records name two attempts that left nothing
    )
    assert sum(each["gets"] for each in scan["by_topic"].values()) == scan["reading"]["gets"]
    assert scan["reading"]["cost"]["total"] == pytest.approx(scan["reading"]["gets"] * 0.0004 / 1000)
    assert report["saving"] is None


def test_what_a_move_and_merging_would_save(offload, broker):
    report = offload(
            "cost", broker, "--prices", "example:aws-s3", "--compare", "example:google-cloud-storage",
            "--compare-class", "NEARLINE", "--merge", "1G", "--egress", "--json",
        ).json  # fmt: skip
    saving = report["saving"]
    assert (saving["prices"]["class"], saving["merge_bytes"]) == ("NEARLINE", 1 << 30)
    assert (saving["objects"], saving["objects_then"]) == (46, 26)
    assert saving["once"] == pytest.approx(
        sum(saving[each] for each in ("reading", "egress", "writing", "early"))
    )
    assert saving["egress"] > saving["month"]
    shown = offload("cost", broker, "--prices", "example:aws-s3", "--compare-class", "STANDARD_IA")
    assert "these prices are an example: check them" in shown.err
    assert re.search(r"^moving costs [0-9.]+ USD once", shown.out, re.MULTILINE)
    assert all(name in shown.out for name in ("writing, USD", "a month, USD", "cost, USD", "a scan, USD"))
    assert "< 0.000001" in shown.out


def test_one_topic_and_no_scan(offload, broker):
    report = offload("cost", broker, "-t", "acme/cold/json", "--no-scan", "--json").json
    assert [row["topic"] for row in report["stored"]] == ["persistent://acme/cold/json"]
    assert (report["scan"], report["prices"]) == (None, None)
    assert "cost_a_month" not in report["total"]


def test_an_empty_tier(offload, tmp_path):
    report = offload("cost", tmp_path, "--prices", "example:aws-s3", "--json").json
    assert (report["stored"], report["total"]["cost_a_month"], report["scan"]) == ([], 0, None)
    shown = offload("cost", tmp_path)
    assert (shown.code, shown.out) == (0, "")
    assert f"no offloaded object under file://{tmp_path}" in shown.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--class", "STANDARD"], "--prices with --class"),
        (["--merge", "1G"], "--prices with --compare"),
        (["--prices", "example:aws-s3", "--class", "none"], "no such storage class"),
        (["--prices", "example:none"], "example:azure-blob"),
        (["--prices", "/no/where/none.toml"], "there is no such file of prices"),
        (["--prices", "example:aws-s3", "--merge", "much"], "not a size"),
    ],
)
def test_wrong_use(offload, tmp_path, options, said):
    result = offload("cost", tmp_path, *options)
    assert (result.code, result.out) == (2, "")
    assert said in result.err


@pytest.fixture
def classes(monkeypatch):
    """Storage classes that listings tell, by the last number of the ledger in the key."""
    told = {}
    listing = Tier.list_objects

    def with_class(self, prefix="", start_after=""):
        for each in listing(self, prefix, start_after):
            name = each.key.removesuffix("-index")
            yield replace(each, storage_class=told.get(name[-1], "STANDARD"))

    monkeypatch.setattr(Tier, "list_objects", with_class)
    return told


def test_each_object_costs_what_its_storage_class_does(offload, broker, classes):
    arguments = ["cost", broker, "--prices", "example:aws-s3", "--topic", "acme/cold/json", "--json"]
    classes.update({"8": "Standard_IA"})  # of the ledgers 25 and 28
    report = offload(*arguments).json
    rows = {row["storage_class"]: row for row in report["stored"]}
    assert rows.keys() == {"STANDARD", "Standard_IA"}
    hot, cool = rows["STANDARD"], rows["Standard_IA"]
    assert hot["cost_a_month"] == pytest.approx((hot["data_bytes"] + hot["other_bytes"]) / 2**30 * 0.023)
    least = 128 << 10  # both its objects are smaller than that
    assert (cool["data_bytes"] < least, cool["cost_a_month"]) == (
        True,
        pytest.approx(2 * least / 2**30 * 0.0125),
    )
    assert report["total"]["cost_a_month"] == pytest.approx(hot["cost_a_month"] + cool["cost_a_month"])
    assert (report["prices"]["class"], report["classes_without_price"]) == ("STANDARD", [])
    said = offload(*arguments, "--class", "STANDARD").json
    assert {row["storage_class"] for row in said["stored"]} == rows.keys()
    total = said["total"]["data_bytes"] + said["total"]["other_bytes"]
    assert said["total"]["cost_a_month"] == pytest.approx(total / 2**30 * 0.023)
    saving = offload(*arguments, "--compare-class", "STANDARD").json["saving"]
    assert saving["month"] == pytest.approx(report["total"]["cost_a_month"])
    assert saving["month_then"] == pytest.approx(said["total"]["cost_a_month"])
    assert saving["early"] > 0  # of the one that is to stay for 30 days


def test_a_storage_class_without_a_price_is_named(offload, broker, classes):
    classes.update({"8": "OURS"})
    result = offload("cost", broker, "--prices", "example:aws-s3", "--topic", "acme/cold/json", "--no-scan")
    assert "no prices for the storage class OURS: the prices of the default class are taken" in result.err
    assert any(line.split()[2:3] == ["OURS"] for line in result.out.splitlines())
