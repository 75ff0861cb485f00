"""`offload du`: bytes by place, format, age and storage class, and how few requests that takes."""

from datetime import UTC, datetime, timedelta

import pytest
from entries import LedgerPart, pip17_object, streaming_object
from mapfiles import lay_out_mapfile, mapfile
from records import closed, copied, managed_ledger
from tiers import TOPIC, Names, lay_out, uuid_of

from offload_core.maintenance.inventory import By, measure
from offload_core.metadata.catalogue.record_source import open_records
from offload_core.metadata.records import pack_managed_ledger_info
from offload_core.storage.tier import Tier
from offload_core.storage.tier.chain import Layer
from offload_drivers.local import LocalDriver
from offload_hooks import hookimpl

WHOLE = pip17_object([b"a", b"b"], ledger_id=3)
BYTES = len(WHOLE.data) + len(WHOLE.index)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def lay_out_some(root):
    """Two topics of a namespace, one of another tenant, a nameless one, and a picture."""
    names = ["acme/cold/persistent/a", "acme/cold/persistent/b", "other/cold/persistent/a%2Fb", None]
    for number, name in enumerate(names):
        lay_out(root, WHOLE, attempt=number, names=Names(managed_ledger=name))
    (root / "cat.png").write_bytes(b"x" * 10)


def test_bytes_are_summed_up_by_place_as_du_does(offload, tmp_path):
    lay_out_some(tmp_path)
    result = offload("du", tmp_path, "--bytes")
    assert (result.code, result.err) == (0, "")
    assert [line.split(maxsplit=2) for line in result.out.splitlines()] == [
        ["10", "1", "(other objects)"],
        [str(BYTES), "2", "(unknown topic)"],
        [str(BYTES), "2", "acme/cold/a"],
        [str(BYTES), "2", "acme/cold/b"],
        [str(2 * BYTES), "4", "acme/cold"],
        [str(2 * BYTES), "4", "acme"],
        [str(BYTES), "2", "other/cold/a/b"],
        [str(BYTES), "2", "other/cold"],
        [str(BYTES), "2", "other"],
        [str(4 * BYTES + 10), "9", "total"],
    ]
    shallow = [line.split()[-1] for line in offload("du", tmp_path, "--depth", "1").out.splitlines()]
    assert shallow == ["objects)", "topic)", "acme", "other", "total"]
    assert len(offload("du", tmp_path, "-d", "0").out.splitlines()) == 1


def test_only_chosen_topics_are_counted(offload, tmp_path):
    lay_out_some(tmp_path)
    said = offload("du", tmp_path, "--topic", "acme/cold/b", "--json").json
    assert said["by"] == "place"
    assert said["usage"][0] == {"path": ["acme", "cold", "b"], "bytes": BYTES, "objects": 2}
    assert said["usage"][-1] == {"path": [], "bytes": BYTES, "objects": 2}


def test_formats_and_ages_are_told_from_the_listing(offload, tmp_path):
    lay_out(tmp_path, WHOLE, attempt=1, modified_at=datetime.now(UTC) - timedelta(hours=1))
    segment = streaming_object([LedgerPart(ledger_id=4, blocks=[[b"a"]])])
    lay_out(tmp_path, segment, attempt=2, modified_at=datetime.now(UTC) - timedelta(days=40))
    by_format = offload("du", tmp_path, "--by", "format").out.splitlines()
    assert [line.split()[-1] for line in by_format] == ["pip17", "streaming", "total"]
    by_age = offload("du", tmp_path, "--by", "age").out.splitlines()
    assert [line.split(maxsplit=2)[2].split(" ", 2)[-1] for line in by_age] == [
        "under 1 day",
        "under 90 days",
        "total",
    ]
    by_class = offload("du", tmp_path, "--by", "storage-class").out.splitlines()
    assert "(not said)" in by_class[0]


def test_checksums_count_as_the_objects_that_they_are_of(offload, tmp_path):
    lay_out_some(tmp_path)
    (tmp_path / f"{uuid_of(1)}-ledger-3-checksums").write_bytes(b"12345")
    said = offload("du", tmp_path, "--json").json["usage"]
    found = {tuple(each["path"]): (each["bytes"], each["objects"]) for each in said}
    assert found["acme", "cold", "b"] == (BYTES + 5, 3)
    assert found["(other objects)",] == (10, 1)


class Asked:
    """Counts requests for single objects."""

    def __init__(self):
        self.stats = 0

    @hookimpl(wrapper=True)
    def stat(self):
        self.stats += 1
        return (yield)


@pytest.mark.parametrize("by", [By.FORMAT, By.AGE, By.STORAGE_CLASS])
def test_what_the_listing_tells_takes_no_further_request(tmp_path, by):
    lay_out_some(tmp_path)
    asked = Asked()
    with Tier(LocalDriver(str(tmp_path)), layers=[Layer(name="asked", make=lambda _: asked)]) as tier:
        measure(tier, by=by, now=NOW)
        assert asked.stats == 0
        measure(tier, by=By.PLACE, now=NOW)
        assert asked.stats == 4


def test_with_records_no_object_is_asked_whose_it_is(offload, tmp_path):
    cold = tmp_path / "cold"
    lay_out(cold, WHOLE, attempt=1, names=Names(managed_ledger=None))
    written = mapfile([b"a"], ledger_id=2, managed_ledger="acme/cold/persistent/maps")
    lay_out_mapfile(cold, written, checksums=False)
    record = tmp_path / "record"
    record.write_bytes(pack_managed_ledger_info(managed_ledger(closed(3, 2, copied(uuid_of(1))))))
    asked = Asked()
    with (
        Tier(LocalDriver(str(cold)), layers=[Layer(name="asked", make=lambda _: asked)]) as tier,
        open_records(f"{TOPIC}={record}", tier, {}) as records,
    ):
        usage = measure(tier, records=records, now=NOW)
    assert asked.stats == 0
    assert usage.size_bytes[("acme", "cold", "orders")] == BYTES
    assert usage.size_bytes[("acme", "cold", "maps")] == len(written.data) + len(written.index)
    result = offload("du", cold, "--records", f"{TOPIC}={record}")
    assert "acme/cold/orders" in result.out
