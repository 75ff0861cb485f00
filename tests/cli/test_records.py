"""`--records` of ls, inspect and cat."""

import pyarrow.parquet as pq
from entries import LedgerPart, pip17_object, streaming_object
from golden import STREAMING_CASES, TOPICS, as_entries
from network.admin import AdminRest, golden_answers, reason
from records import (
    DRIVER,
    closed,
    copied,
    failed,
    managed_ledger,
    segment,
    still_open,
    streaming_entries,
    streaming_record,
)
from tiers import TOPIC, Names, lay_out, lay_out_case, uuid_of

from offload_core.format.messages.compression import Compression
from offload_core.metadata.records import (
    OffloadContext,
    StoredRecord,
    pack_managed_ledger_info,
    pack_stored_record,
)

NAMELESS = Names(managed_ledger=None)


def some(tmp_path):
    """A tier and its topic's record: ledger 3 offloaded, 4 missing, 5 in segments (one failed), 6 hot."""
    tier = tmp_path / "tier"
    lay_out(tier, pip17_object([b"a", b"b"], ledger_id=3), attempt=3, names=NAMELESS)
    part = LedgerPart(ledger_id=5, blocks=[[b"c"]])
    lay_out(tier, streaming_object([part]), attempt=5, names=NAMELESS)
    context = OffloadContext.of_segments([segment(uuid_of(5), 0), failed(segment(uuid_of(6), 8))])
    info = managed_ledger(
        still_open(6),
        closed(3, 2, copied(uuid_of(3), bookkeeper_deleted=True)),
        closed(5, 9, context),
        closed(4, 7, copied(uuid_of(4))),
    )
    return tier, record_of(tmp_path, info)


def record_of(tmp_path, info):
    path = tmp_path / "a-record"
    path.write_bytes(pack_managed_ledger_info(info))
    return f"{TOPIC}={path}"


# --- ls ----------------------------------------------------------------------------------------


def test_ls_counts_what_is_in_bookkeeper_only_and_names_what_is_missing(offload, tmp_path):
    tier, record = some(tmp_path)
    result = offload("ls", tier, "--records", record)
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[1].startswith("acme/cold/orders        4       18")
    assert lines[1].rstrip().endswith("2 not readable, 1 in BookKeeper only")
    assert [line.rstrip().split(maxsplit=2) for line in lines[3:]] == [
        ["missing", f"{uuid_of(4)}-ledger-4",
         "its record says that aws-s3 at golden has it; it is not here"],
        ["unfinished", str(uuid_of(6)), "by its record the offload of this segment failed"],
    ]  # fmt: skip


def test_ls_shows_what_the_record_says_of_each_ledger(offload, tmp_path):
    tier, record = some(tmp_path)
    header, *lines = offload("ls", "-l", tier, "--records", record).out.splitlines()
    at = header.index("record ")
    end = header.index("data object")
    assert [line[at:end].strip() for line in lines[:4]] == [
        "offloaded; deleted from BookKeeper",
        "offloaded",
        "segments: 1 failed, 1 offloaded",
        "BookKeeper only",
    ]
    assert [line[end:].strip() for line in lines[:4]] == [
        f"{uuid_of(3)}-ledger-3", "none that is complete", str(uuid_of(5)), "none that is complete",
    ]  # fmt: skip


def test_ls_says_all_of_it_in_json(offload, tmp_path):
    tier, record = some(tmp_path)
    listed = offload("ls", tier, "--records", record, "--json").json
    three, four, five, six = listed["topics"][0]["ledgers"]
    assert three["record"] == {
        "state": "offloaded; deleted from BookKeeper",
        "entries": 2,
        "size_bytes": 200,
        "closed": True,
        "uuid": str(uuid_of(3)),
        "complete": True,
        "bookkeeper_deleted": True,
        "driver": {"name": DRIVER.name, "properties": dict(DRIVER.properties)},
        "segments": [],
    }
    assert (four["read_from"], four["attempts"][0]["problem"]) == ([], "missing")
    assert four["attempts"][0]["modified_at"] is None
    assert [
        (each["uuid"], each["status"], each["begin_entry"], each["end_entry"])
        for each in five["record"]["segments"]
    ] == [(str(uuid_of(5)), "offloaded", 0, 0), (str(uuid_of(6)), "failed", 1, 8)]
    assert six["attempts"] == []
    assert (six["record"]["state"], six["record"]["closed"]) == ("BookKeeper only", False)


# --- inspect -----------------------------------------------------------------------------------


def test_inspect_says_whose_record_names_an_object(offload, tmp_path):
    tier, record = some(tmp_path)
    key = str(uuid_of(5))
    told = offload("inspect", tier, key, "--records", record).out.splitlines()[0]
    assert told.rstrip() == f"ledger 5 of {TOPIC}, by its record: segments: 1 failed, 1 offloaded"
    (named,) = offload("inspect", tier, key, "--records", record, "--json").json["records"]
    assert (named["topic"], named["ledger"]) == (TOPIC, 5)
    assert named["record"]["entries"] == 9
    other = record_of(tmp_path, managed_ledger())
    assert offload("inspect", tier, key, "--records", other).out.startswith("no record names it")
    assert offload("inspect", tier, key, "--records", other, "--json").json["records"] == []
    assert "records" not in offload("inspect", tier, key, "--json").json


def test_inspect_refuses_a_format_that_record_and_key_disagree_on_and_names_both(offload, tmp_path):
    tier, _ = some(tmp_path)
    record = record_of(tmp_path, managed_ledger(closed(5, 1, copied(uuid_of(5)))))
    result = offload("inspect", tier, uuid_of(5), "--records", record)
    assert result.code == 2
    assert "ledger 5): expected pip17 by the record, found streaming by the key" in result.err


# --- cat ---------------------------------------------------------------------------------------


def test_cat_reads_pulsars_streaming_objects_under_their_topics_name(offload, tmp_path):
    for name in STREAMING_CASES:
        lay_out_case(tmp_path / "tier", "streaming", name)
    path = tmp_path / "managed-ledgers" / "acme" / "cold" / "persistent" / "streamed"
    path.parent.mkdir(parents=True)
    path.write_bytes(
        pack_stored_record(StoredRecord(info=streaming_record(), compression=Compression.SNAPPY))
    )
    target = tmp_path / "rows.parquet"
    result = offload(
        "cat", tmp_path / "tier", "--records", tmp_path / "managed-ledgers", "-t", "acme/cold/streamed",
        "--level", "entries", "-f", "parquet", "--output", target,
    )  # fmt: skip
    assert result.code == 0
    assert as_entries(pq.read_table(target).to_pylist()) == streaming_entries()


def test_a_place_without_records_is_wrong_use(offload, tmp_path):
    tier, _ = some(tmp_path)
    for command in (["ls", tier], ["cat", tier, "--ledger", "3"], ["inspect", tier, uuid_of(5)]):
        result = offload(*command, "--records", tmp_path / "tier")
        assert result.code == 2
        assert "no record of a managed ledger is there" in result.err


def test_records_of_an_admin_rest_with_its_options(offload, broker, tmp_path, caplog):
    token = tmp_path / "token"
    token.write_text("geheim")
    with AdminRest(golden_answers()) as rest:
        options = ("--records", rest.url, "--records-option", f"token_file={token}")
        listed = offload("ls", broker, *options, "--json").json
        assert [topic["topic"].rpartition("/")[2] for topic in listed["topics"]] == TOPICS
        assert {request.headers["authorization"] for request in rest.requests} == {"Bearer geheim"}
        result = offload("cat", broker, *options, "-t", "acme/cold/chunk")
        assert result.code == 0
        assert (
            "nothing of persistent://acme/cold/chunk is read: ledger 29 has no complete copy" in caplog.text
        )
        key = "01c371c2-3d3c-4edc-ac72-d989c612693d-ledger-35"
        assert "by its record: offloaded" in offload("inspect", broker, key, *options).out
        rest.answers["/tenants"] = reason(403, "no")
        result = offload("ls", broker, *options)
        assert (result.code, "geheim" in result.out + result.err) == (1, False)
        assert "a broker refuses a request" in result.err
        result = offload("ls", broker, "--records", rest.url, "--records-option", "geheim")
        assert (result.code, result.err.partition(":")[0]) == (2, "offload")
