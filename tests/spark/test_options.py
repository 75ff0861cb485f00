"""What the Spark source makes of a query's options."""

import re

import pytest

from offload_core.interfaces.engines.spark.source_options import option_texts, parse_options
from offload_core.metadata.catalogue import parse_topic
from offload_core.reading.scan.positions import Position
from offload_hooks.errors import OptionError


def test_options_of_the_source_come_in_the_lower_case_that_spark_hands_over():
    """Those of a scan are in `tests/scan/test_options.py`."""
    options = parse_options(
        {
            "path": "file:///x",
            "driver": "local",
            "storage.root": "/y",
            "records": "http://broker:8080",
            "records.token_file": "/z",
            "topics": "t/n/a, t/n/b,",
            "verifychecksums": "TRUE",
            "minpartitions": "8",
            "maxpartitionbytes": "1000",
        }
    )
    assert options.storage == {"root": "/y"}
    assert (options.scan.records, options.scan.records_options) == (
        "http://broker:8080",
        {"token_file": "/z"},
    )
    assert options.topics == ("t/n/a", "t/n/b")
    assert (options.min_partitions, options.max_partition_bytes) == (8, 1000)
    assert options.scan.verify_checksums


def test_storage_options_are_a_dict_or_its_json():
    given = {"key": "an-id", "client_kwargs": {"region_name": "eu-west-1"}}
    options = parse_options(option_texts("prod", {"storage_options": given}))
    assert (options.path, options.storage_options) == ("prod", given)
    assert "an-id" not in repr(options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "where is the tier"),
        ({"path": "x", "storage_options": "[]"}, "'storage_options' is no JSON object"),
        ({"path": "x", "storage_options": "hunter2"}, "the option 'storage_options'"),
        ({"path": "x", "colums": "value"}, "Did you mean 'columns'"),
        ({"path": "x", "topic": "a/b/c", "topics": "a/b/d"}, "topics are asked for twice"),
        ({"path": "x", "topic": "a/b/c", "topicspattern": ".*"}, "topics are asked for twice"),
        ({"path": "x", "records.token": "y"}, "where are the records"),
        ({"path": "x", "subscribe": "a/b/c", "topics": "a/b/d"}, "topics are asked for twice"),
        (
            {"path": "x", "subscribepattern": ".*", "topicspattern": ".*"},
            "option topicsPattern is given twice",
        ),
        ({"path": "x", "topics": " , "}, "option topics is empty"),
        ({"path": "x", "minpartitions": "0"}, "option minPartitions is not a number"),
        ({"path": "x", "minpartitions": "²"}, "option minPartitions is not a number"),
        ({"path": "x", "ledger": "-1"}, "option ledger is not a ledger's id"),
        ({"path": "x", "failondataloss": "yes"}, "neither true nor false"),
        ({"path": "x", "startingoffsets": "sometime"}, "startingOffsets is neither a word nor JSON"),
        ({"path": "x", "keyprovider": "pem=hunter2"}, "the key provider 'pem' is written in another form"),
        ({"path": "x", "endingoffsets": '{"a/b/c": "1:1"}'}, "endingOffsets has another form"),
    ],
)
def test_what_makes_no_sense_is_refused(options, says):
    with pytest.raises(OptionError, match=says):
        parse_options(options)


def test_words_of_the_source_for_kafka_are_ours():
    kafkas = {"subscribe": "a/b/c,a/b/d", "startingtimestamp": "5", "endingtimestamp": "2026-11-21T08:30:00Z"}
    ours = {"topics": "a/b/c,a/b/d", "startingtime": "5", "endingtime": "2026-11-21T08:30:00Z"}
    assert parse_options({"path": "x"} | kafkas) == parse_options({"path": "x"} | ours)
    assert parse_options({"path": "x", "subscribepattern": "a/.*"}).scan.topics_pattern == "a/.*"


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("kafka.bootstrap.servers", "not Kafka. Name the bucket by path"),
        ("service.url", "No broker is asked: name the bucket by path"),
        ("admin.url", "schemas=http://"),
        ("pulsar.client.authParams", "credentials by storage"),
        ("pulsar.reader.subscriptionName", "No broker is asked"),
        ("subscriptionPrefix", "leave it out"),
        ("groupIdPrefix", "leave it out"),
        ("assign", "Name partitions as topics"),
        ("startingOffsetsByTimestamp", "startingTime"),
        ("waitingForNonExistedTopic", "topicsPattern"),
        ("includeHeaders", "__messageProperties"),
    ],
)
def test_words_of_other_sources_that_mean_nothing_here_are_refused_with_what_helps(option, says):
    with pytest.raises(OptionError, match="has no option") as caught:
        parse_options({"path": "x", option.lower(): "1"})
    assert says in caught.value.hint


def test_without_a_tier_the_hint_is_about_tables():
    with pytest.raises(OptionError, match="where is the tier") as caught:
        parse_options({})
    assert "CREATE TABLE" in caught.value.hint


def test_options_of_python_are_texts():
    given = {"topics": ["a/b/c", "a/b/d"], "failOnDataLoss": False, "minPartitions": 3}
    given["startingOffsets"] = {"a/b/c": {"-1": "1:2"}}
    options = parse_options(option_texts("x", given))
    assert (options.topics, options.min_partitions) == (("a/b/c", "a/b/d"), 3)
    assert not options.scan.fail_on_data_loss
    assert options.scan.start == {parse_topic("a/b/c"): Position(1, 2)}


def test_a_query_starts_at_the_earliest_message_and_a_stream_at_the_latest():
    options = parse_options({"path": "x"})
    assert (options.scan.start, options.stream_start) == ("earliest", "latest")
    options = parse_options({"path": "x", "startingoffsets": "earliest"})
    assert (options.scan.start, options.stream_start) == ("earliest", "earliest")


def test_values_of_storage_and_records_options_are_not_shown():
    given = {"path": "x", "storage.secret": "hunter2", "records": "y", "records.token": "hunter2"}
    given["keyProvider"] = "vault:token=hunter2"
    assert "hunter2" not in repr(parse_options(given))


@pytest.mark.spark
def test_a_wrong_option_and_a_missing_tier_end_with_our_error_alone(spark, tmp_path):
    for options, path, ends in (
        ({"failOnDatLoss": "no"}, tmp_path, "Did you mean 'failOnDataLoss'?"),
        ({}, tmp_path / "none", "does not exist"),
    ):
        with pytest.raises(Exception, match=re.escape(ends)) as caught:
            spark.read.format("pulsar_offload").options(**options).load(str(path)).count()
        lines = [line for line in str(caught.value).splitlines() if line.strip() and "SQLSTATE" not in line]
        assert lines[-1].startswith("offload_hooks.errors.")
        assert len(lines) <= 8, lines
