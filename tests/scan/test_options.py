"""One value of scan options, reached from Python, Spark and the command line alike."""

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import pytest
import typer
from entries import entry, pip17_object
from tiers import Names, in_memory, lay_out

from offload_core.interfaces.cli.scan_options import MessagesRead
from offload_core.interfaces.engines.spark.source_options import parse_options
from offload_core.reading.scan import Position, ScanOptions
from offload_core.reading.scan.options import WORDS
from offload_core.storage.tier import MeasuredTier, PluginSpec
from offload_hooks.errors import OptionError
from pulsar_offload import TierReader, TopicName, open_tier, scan

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "commands.md"

GIVEN: dict[str, tuple[str, str, object]] = {
    "topics_pattern": ("topicsPattern", "a/.*", "a/.*"),
    "ledger": ("ledger", "7", 7),
    "cluster": ("cluster", "east", "east"),
    "prefix": ("prefix", "a/", "a/"),
    "records": ("records", "/records", "/records"),
    "tiered_read_priority": ("tieredReadPriority", "BOOKKEEPER_FIRST", "bookkeeper-first"),
    "level": ("level", "Entries", "entries"),
    "columns": ("columns", "value, __key", ("value", "__key")),
    "start": (
        "startingOffsets",
        '{"a/b/c": {"-1": "3:4"}}',
        {TopicName("persistent://a/b/c"): Position(3, 4)},
    ),
    "stop": ("endingOffsets", "earliest", "earliest"),
    "start_time": ("startingTime", "1700000000000", 1_700_000_000_000),
    "stop_time": ("endingTime", "1800000000000", 1_800_000_000_000),
    "time_slack_ms": ("timeSlack", "0", 0),
    "isolation": ("isolation", "uncommitted", "uncommitted"),
    "transaction_timeout_ms": ("transactionTimeout", "0", 0),
    "transaction_search_bytes": ("transactionSearchBytes", "7", 7),
    "schemas": ("schemas", "./schemas", "./schemas"),
    "reader_schema": ("readerSchema", "3", "3"),
    "mode": ("mode", "dropMalformed", "DROPMALFORMED"),
    "corrupt_column": ("columnNameOfCorruptRecord", "bad", "bad"),
    "key_provider": (
        "keyProvider",
        "pem:directory=/keys",
        PluginSpec(name="pem", options={"directory": "/keys"}),
    ),
    "crypto_failure_action": ("cryptoFailureAction", "discard", "DISCARD"),
    "chunks": ("chunks", "RAW", "raw"),
    "chunk_look_back_bytes": ("chunkLookBackBytes", "5", 5),
    "max_pending_chunk_bytes": ("maxPendingChunkBytes", "6", 6),
    "max_message_bytes": ("maxMessageBytes", "9", 9),
    "verify_checksums": ("verifyChecksums", "false", False),
    "fail_on_data_loss": ("failOnDataLoss", "False", False),
}
"""Of each field Spark's word, a text that is not the default, and its value."""


def typed(*arguments):
    """The options that a command line of a command that reads messages makes."""
    made: list[ScanOptions] = []

    def command(**given):
        made.append(MessagesRead(**given).options())

    command.__signature__ = MessagesRead.__signature__
    app = typer.Typer()
    app.command()(command)
    app(list(arguments), standalone_mode=False)
    return made[0]


def flag_of(word):
    return "--" + "".join(f"-{c.lower()}" if c.isupper() else c for c in word)


def test_every_field_is_documented_and_has_a_word_for_spark():
    fields = [field.name for field in dataclasses.fields(ScanOptions)]
    assert [name for name in fields if name != "records_options"] == list(WORDS) == list(GIVEN)
    described = inspect.getdoc(ScanOptions) or ""  # Python 3.13 takes indentation off docstrings
    assert all(f"\n    {name}: " in described for name in fields)
    assert all(f"`{flag_of(word)}" in REFERENCE.read_text() for word, _, _ in GIVEN.values())


@pytest.mark.parametrize("name", GIVEN)
def test_an_option_is_the_same_in_python_in_spark_and_on_the_command_line(name):
    word, text, value = GIVEN[name]
    expected = ScanOptions().having(**{name: value})
    assert expected != ScanOptions()
    assert parse_options({"path": "x", word.lower(): text}).scan == expected
    arguments = [f"--no-{flag_of(word)[2:]}"] if isinstance(value, bool) else [flag_of(word), text]
    assert typed(*arguments) == expected


def test_options_of_the_hot_tier_name_its_store():
    options = parse_options({"path": "x", "hot": "bookkeeper", "hot.url": "zk://secret"})
    assert (options.hot, options.hot_options) == ("bookkeeper", {"url": "zk://secret"})
    assert "secret" not in repr(options)
    with pytest.raises(OptionError, match="which ledger store is the hot tier"):
        parse_options({"path": "x", "hot.url": "zk://secret"})


def test_options_of_the_records_are_the_same_in_all_three():
    expected = ScanOptions(records="zk://x", records_options={"chroot": "/a"})
    assert parse_options({"path": "x", "records": "zk://x", "records.chroot": "/a"}).scan == expected
    assert typed("--records", "zk://x", "--records-option", "chroot=/a") == expected


@pytest.mark.parametrize(
    "name", [name for name, (_, _, value) in GIVEN.items() if not isinstance(value, str)]
)
def test_an_error_names_the_option_as_it_was_given(name):
    word, _, value = GIVEN[name]
    wrong = "pem=" if name == "key_provider" else "," if name == "columns" else "?"
    named = "key provider" if name == "key_provider" else word
    with pytest.raises(OptionError, match=named):
        parse_options({"path": "x", word: wrong})
    if not isinstance(value, bool):
        with pytest.raises(OptionError, match="key provider" if name == "key_provider" else flag_of(word)):
            typed(flag_of(word), wrong)


def test_a_keyword_that_is_no_option_is_refused_with_the_one_that_was_meant():
    with pytest.raises(OptionError, match=r"no option 'isolaton'.*Did you mean 'isolation'"):
        scan(in_memory(), isolaton="committed")


def test_keywords_go_before_the_options():
    tier = in_memory(pip17_object([entry(b"a")]))
    options = ScanOptions(level="entries", columns=["value", "__entryId"])
    assert scan(tier, options=options, columns=["__entryId"]).schema.names == ["__entryId"]


# --- a catalogue that is known ------------------------------------------------------------------


def test_scans_of_twenty_topics_list_a_tier_once(tmp_path):
    for number in range(20):
        names = Names(managed_ledger=f"acme/cold/persistent/t{number}")
        lay_out(
            tmp_path, pip17_object([entry(b"%d" % number)], ledger_id=number), attempt=number, names=names
        )
    with open_tier(tmp_path) as opened:
        measured = MeasuredTier(opened.store)
        tier = TierReader(measured)
        known = tier.catalogue()
        listed = measured.requests.lists
        values: list[Any] = []
        for number in range(20):
            values += scan(tier, f"acme/cold/t{number}", catalogue=known).to_table()["value"].to_pylist()
        assert values == [b"%d" % number for number in range(20)]
        assert measured.requests.lists == listed > 0
        scan(tier, "acme/cold/t7")
        assert measured.requests.lists > listed


@pytest.mark.parametrize("given", [{"prefix": "a/"}, {"records": {}}, {"records_options": {"a": "b"}}])
def test_a_catalogue_takes_the_place_of_a_prefix_and_of_records(given):
    tier = in_memory(pip17_object([entry(b"a")]))
    with pytest.raises(OptionError, match="given twice"):
        scan(tier, catalogue=tier.catalogue(), **given)
