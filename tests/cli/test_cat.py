"""`offload cat`: rows as a table, JSON lines or Parquet, whole or not at all."""

import base64
import json
from datetime import datetime

import pyarrow.parquet as pq
import pytest
from entries import WrittenObject, batch_entry, entry, pip17_object
from golden import COLUMNS, TOPICS, assert_topic_is_as_expected
from scenes.messages import sealed_entry, write_keys
from tiers import lay_out

from offload_core.format.messages.message_columns import EXTRA_MESSAGE_COLUMNS, MESSAGE_COLUMNS
from pulsar_offload import open_tier, scan

ALL = ",".join([*MESSAGE_COLUMNS, *EXTRA_MESSAGE_COLUMNS])
ORDERS = "acme/cold/orders"
_BINARY = ("value", "__key", "__messageId", "__orderingKey", "__schemaVersion", "__encryptionParam")
_TIMES = ("__publishTime", "__eventTime", "__brokerPublishTime")


def from_json(line):
    """A row as Arrow gives it."""
    row = json.loads(line)
    for name in set(_BINARY) & row.keys():
        row[name] = None if row[name] is None else base64.b64decode(row[name], validate=True)
    for name in set(_TIMES) & row.keys():
        row[name] = None if row[name] is None else datetime.fromisoformat(row[name])
    return row


def lines_of(text):
    return (from_json(line) for line in text.splitlines())


@pytest.fixture
def orders(tmp_path):
    """A tier with ledgers 3 and 4 of three entries each: a message, a batch of two, a message."""
    for ledger_id in (3, 4):
        text = b"%d" % ledger_id
        entries = [
            entry(text + b":0", partition_key="key", properties=[("p", "ü"), ("q", "")]),
            batch_entry([text + b":1:0", text + b":1:1"]),
            entry(b"", null_value=True),
        ]
        lay_out(tmp_path / "tier", pip17_object(entries, ledger_id=ledger_id), attempt=ledger_id)
    return tmp_path / "tier"


# --- JSON lines --------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", sorted(set(TOPICS) - {"chunk"}))
def test_json_lines_of_a_topic_are_what_pulsars_clients_read(offload, broker, topic):
    result = offload("cat", broker, "-t", f"acme/cold/{topic}", "-f", "jsonl", "--columns", ALL)
    assert result.code == 0
    rows = list(lines_of(result.out))
    assert set(rows[0]) == set(ALL.split(","))
    assert_topic_is_as_expected(rows, topic)


@pytest.mark.long
def test_json_lines_have_binary_as_base64_times_as_iso_8601_and_maps_as_objects(offload, orders):
    result = offload("cat", orders, "-t", ORDERS, "-f", "jsonl", "-n", "1")
    assert (result.code, result.err) == (0, "")
    assert result.json == {
        "value": "Mzow",
        "__key": "a2V5",
        "__topic": "persistent://acme/cold/orders",
        "__messageId": "CAMQAA==",
        "__publishTime": "2023-11-14T22:13:20.000Z",
        "__eventTime": None,
        "__messageProperties": {"p": "ü", "q": ""},
        "__partition": -1,
        "__sequenceId": 0,
        "__producerName": "producer",
        "__ledgerId": 3,
        "__entryId": 0,
        "__batchIndex": -1,
    }
    assert '"ü"' in result.out


def test_a_time_beyond_the_year_9999_is_written(offload, tmp_path):
    lay_out(tmp_path, pip17_object([entry(b"a", event_time=10**15), entry(b"b", event_time=2**63)]))
    result = offload("cat", tmp_path, "-t", ORDERS, "-f", "jsonl", "--columns", "__eventTime")
    assert result.code == 0
    assert result.out == '{"__eventTime": "33658-09-27T01:46:40.000Z"}\n{"__eventTime": null}\n'
    assert (
        "33658-09-27T01:46:40.000Z" in offload("cat", tmp_path, "-t", ORDERS, "--columns", "__eventTime").out
    )


def test_of_a_property_that_is_there_twice_the_last_value_is_written(offload, tmp_path):
    lay_out(tmp_path, pip17_object([entry(b"a", properties=[("p", "1"), ("q", "2"), ("p", "3")])]))
    result = offload("cat", tmp_path, "-t", ORDERS, "-f", "jsonl", "--columns", "__messageProperties")
    assert (result.out, result.err) == ('{"__messageProperties": {"p": "3", "q": "2"}}\n', "")


def test_several_topics_are_written_one_after_another(offload, broker):
    result = offload("cat", broker, "-t", "acme/cold/jstring", "-t", "acme/cold/jmisc", "-f", "jsonl")
    names = [json.loads(line)["__topic"] for line in result.out.splitlines()]
    assert list(dict.fromkeys(names)) == ["persistent://acme/cold/jmisc", "persistent://acme/cold/jstring"]


def test_entries_are_written_as_they_are_stored(offload, orders):
    result = offload("cat", orders, "--ledger", "4", "--level", "entries", "-f", "jsonl")
    rows = list(lines_of(result.out))
    assert [(row["__ledgerId"], row["__entryId"]) for row in rows] == [(4, 0), (4, 1), (4, 2)]
    assert rows[0]["value"] == entry(b"4:0", partition_key="key", properties=[("p", "ü"), ("q", "")])
    assert set(rows[0]) == {"value", "__topic", "__ledgerId", "__entryId"}


def test_a_ledger_needs_no_topic(offload, orders):
    result = offload("cat", orders, "--ledger", "3", "-f", "jsonl", "--columns", "value")
    assert [row["value"] for row in lines_of(result.out)] == [b"3:0", b"3:1:0", b"3:1:1", None]


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        (["--start", "latest"], []),
        (["--stop", "earliest"], []),
        (["--start", '{"acme/cold/orders": {"-1": "3:2"}}', "--stop", '{"acme/cold/orders": {"-1": "4:1:1"}}'],
         [None, b"4:0", b"4:1:0"]),
        (["--start", '{"acme/cold/orders": {"-1": "3:1:1"}}', "--limit", "1"], [b"3:1:1"]),
        (["--start", '{"acme/cold/orders": {"-1": "base64:CAMQASAB"}}', "--limit", "1"], [b"3:1:1"]),
        (["--limit", "0"], []),
    ],
)  # fmt: skip
def test_start_stop_and_limit_bound_what_is_written(offload, orders, arguments, values):
    result = offload("cat", orders, "-t", ORDERS, "-f", "jsonl", "--columns", "value", *arguments)
    assert (result.code, result.err) == (0, "")
    assert [row["value"] for row in lines_of(result.out)] == values


def test_what_cannot_be_read_is_up_to_the_key_provider_and_the_mode(offload, tmp_path):
    keys = write_keys(tmp_path / "keys", "orders")
    secrets = [sealed_entry(b"a"), sealed_entry(b"b", tampered=True), sealed_entry(b"c")]
    lay_out(tmp_path / "tier", pip17_object(secrets))
    read = ("cat", tmp_path / "tier", "-t", ORDERS, "-f", "jsonl", "--key-provider", f"pem:directory={keys}")
    failed = offload(*read)
    assert failed.code == 1
    assert "found key 'orders'" in failed.err
    result = offload(*read, "--mode", "DROPMALFORMED")
    assert [row["value"] for row in lines_of(result.out)] == [b"a", b"c"]


def test_json_lines_go_into_a_file_with_output(offload, orders, tmp_path):
    target = tmp_path / "rows.jsonl"
    result = offload("cat", orders, "-t", ORDERS, "-f", "jsonl", "--output", target)
    assert (result.code, result.out, result.err) == (0, "", "")
    assert target.read_text() == offload("cat", orders, "-t", ORDERS, "-f", "jsonl").out


# --- Parquet -----------------------------------------------------------------------------------


def test_parquet_holds_what_a_scan_gives(offload, broker, tmp_path):
    target = tmp_path / "rows.parquet"
    into = ("-f", "parquet", "--output", target, "--columns", ",".join(COLUMNS))
    result = offload("cat", broker, "-t", "acme/cold/json", *into)
    assert (result.code, result.out, result.err) == (0, "", "")
    table = pq.read_table(target)
    with open_tier(broker) as tier:
        assert table.equals(scan(tier, "acme/cold/json", columns=COLUMNS).to_table())
    assert_topic_is_as_expected(table.to_pylist(), "json")
    assert pq.ParquetFile(target).metadata.row_group(0).column(0).compression == "ZSTD"


def test_parquet_of_no_rows_has_the_columns(offload, orders, tmp_path):
    target = tmp_path / "rows.parquet"
    assert offload("cat", orders, "-t", ORDERS, "-n", "0", "-f", "parquet", "--output", target).code == 0
    table = pq.read_table(target)
    assert (table.num_rows, table.column_names) == (0, list(MESSAGE_COLUMNS))


def damaged(tmp_path):
    """A tier whose second block is not what its index says."""
    written = pip17_object([entry(b"x" * 370)] * 4, max_block_bytes=1000)
    data = written.data[:1000] + b"\0" + written.data[1001:]
    lay_out(tmp_path / "tier", WrittenObject(key=written.key, data=data, index=written.index, entries=()))
    return tmp_path / "tier"


@pytest.mark.parametrize("format_", ["jsonl", "parquet"])
def test_an_error_in_the_middle_leaves_no_file_and_an_older_one_as_it_was(offload, tmp_path, format_):
    tier, target = damaged(tmp_path), tmp_path / "rows"
    arguments = ("cat", tier, "-t", ORDERS, "-f", format_, "--output", target)
    result = offload(*arguments)
    assert (result.code, result.out) == (1, "")
    assert "block 2" in result.err
    assert list(tmp_path.iterdir()) == [tier]
    target.write_text("older")
    assert offload(*arguments).code == 1
    assert target.read_text() == "older"
    assert set(tmp_path.iterdir()) == {tier, target}


def test_a_file_is_replaced_when_the_new_one_is_whole(offload, orders, tmp_path):
    target = tmp_path / "rows"
    target.write_text("older")
    columns = ("-f", "jsonl", "--columns", "__entryId")
    assert offload("cat", orders, "--ledger", "3", *columns, "--output", target).code == 0
    assert target.read_text() == '{"__entryId": 0}\n{"__entryId": 1}\n{"__entryId": 1}\n{"__entryId": 2}\n'
    assert {path.name for path in tmp_path.iterdir()} == {"tier", "rows"}


def test_what_came_before_an_error_is_written_to_a_pipe(offload, tmp_path):
    result = offload("cat", damaged(tmp_path), "-t", ORDERS, "-f", "jsonl", "--columns", "__entryId")
    assert result.code == 1
    assert result.out == '{"__entryId": 0}\n{"__entryId": 1}\n'


# --- the table ---------------------------------------------------------------------------------


def test_a_table_shows_a_few_columns_as_text(offload, orders):
    result = offload("cat", orders, "-t", ORDERS)
    assert (result.code, result.err) == (0, "")
    lines = [" ".join(line.split()) for line in result.out.splitlines()]
    assert lines[0] == "__ledgerId __entryId __batchIndex __publishTime __key value __messageProperties"
    assert lines[1] == '3 0 -1 2023-11-14T22:13:20.000Z key 3:0 {"p": "ü", "q": ""}'
    assert lines[2] == "3 1 0 2023-11-14T22:13:20.000Z – 3:1:0 {}"
    assert lines[4] == "3 2 -1 2023-11-14T22:13:20.000Z – – {}"
    assert len(lines) == 9


def test_a_table_ends_after_twenty_rows_and_says_that_there_are_more(offload, broker):
    result = offload("cat", broker, "-t", "acme/cold/jstring")
    assert result.code == 0
    assert len(result.out.splitlines()) == 21
    assert " ".join(result.err.split()) == (
        "20 rows are shown; there are more. Ask with --limit, or write all with --format."
    )


@pytest.mark.parametrize(
    ("limit", "rows"), [((), 20), (("--limit", "0"), 0), (("--limit", "3"), 3), (("--limit", "100"), 20)]
)
def test_a_limit_is_the_number_of_rows_of_the_table_and_exactly_twenty_are_all(
    offload, tmp_path, limit, rows
):
    lay_out(tmp_path, pip17_object([entry(b"%d" % i) for i in range(20)]))
    result = offload("cat", tmp_path, "-t", ORDERS, *limit)
    assert (result.code, result.err, len(result.out.splitlines())) == (0, "", 1 + rows)


def test_a_long_value_is_cut_and_bytes_that_are_no_text_are_hexadecimal(offload, tmp_path):
    lay_out(tmp_path, pip17_object([entry(b"x" * 61), entry(b"\xff\x00"), entry(b"y" * 60)]))
    lines = offload("cat", tmp_path, "-t", ORDERS, "--columns", "value").out.splitlines()
    assert [line.strip() for line in lines] == ["value", "x" * 59 + "…", "ff00", "y" * 60]


# --- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "nothing to read is named: expected --topic, --topics-pattern or --ledger"),
        (["-t", ORDERS, "-f", "parquet"], 2, "Parquet goes to a file: expected --output FILE"),
        (
            ["-t", ORDERS, "--output", "x"],
            2,
            "a table is for the terminal: expected --format jsonl or parquet with",
        ),
        (["-t", "orders"], 2, "nothing is known of this topic"),
        (["-t", ORDERS, "--columns", "valu"], 2, "there is no column 'valu' at level messages"),
        (
            ["-t", ORDERS, "--columns", ""],
            2,
            "option --columns is empty: expected names, with commas between them",
        ),
        (["-t", ORDERS, "--start", "now"], 2, "--starting-offsets is neither a word nor JSON"),
        (["-t", ORDERS, "--stop", '{"a/b/c": 1}'], 2, "--ending-offsets has another form at 'a/b/c'"),
        (["-t", ORDERS, "--start-time", "today"], 2, "--starting-time is not a time"),
        (["-t", ORDERS, "--stop-time", "2026-11-21T08:30:00"], 2, "--ending-time has no zone"),
        (
            ["-t", "acme/cold/order"],
            2,
            "no topic persistent://acme/cold/order has offloaded data here: expected one of ",
        ),
        (["--ledger", "99"], 2, "no copy of this ledger is here (ledger 99)"),
        (["-t", ORDERS, "-f", "jsonl", "--output", "/no/such/folder/x"], 2, "[Errno 2]"),
        (
            ["-t", ORDERS, "--start", '{"acme/cold/orders": {"-1": "1:0"}}'],
            1,
            "persistent://acme/cold/orders was asked",
        ),
    ],
)
def test_what_is_asked_for_wrongly_is_one_line_and_an_exit_code(offload, orders, arguments, code, message):
    result = offload("cat", orders, *arguments)
    assert (result.code, result.out) == (code, "")
    assert result.err.startswith(f"offload: {message}")
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "places"),
    [
        (["--start-time", "1700000001000"], [1, 2]),
        (["--start-time", "2023-11-14T23:13:21+01:00", "--stop-time", "2023-11-14T22:13:22Z"], [1]),
        (["--stop-time", "1700000000001"], [0]),
    ],
)
def test_a_range_of_times_gives_its_messages(offload, tmp_path, arguments, places):
    entries = [entry(b"%d" % i, publish_time=1_700_000_000_000 + 1000 * i) for i in range(3)]
    lay_out(tmp_path, pip17_object(entries))
    result = offload("cat", tmp_path, "-t", ORDERS, "-f", "jsonl", "--columns", "__entryId", *arguments)
    assert [row["__entryId"] for row in lines_of(result.out)] == places


@pytest.mark.parametrize(
    "arguments",
    [["--level", "blocks"], ["--format", "xml"], ["--limit", "-1"], ["--ledger", "-1"], ["--nonsense"]],
)
def test_arguments_that_there_are_not_are_refused(offload, orders, arguments):
    result = offload("cat", orders, "-t", ORDERS, *arguments)
    assert (result.code, result.out) == (2, "")
    assert arguments[0].lstrip("-") in result.err
