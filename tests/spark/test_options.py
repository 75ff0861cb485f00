"""What the Spark source makes of a query's options."""

import pytest

from offload_core.interfaces.spark.source_options import parse_options
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


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "where is the tier"),
        ({"path": "x", "colums": "value"}, "Did you mean 'columns'"),
        ({"path": "x", "topic": "a/b/c", "topics": "a/b/d"}, "topics are asked for twice"),
        ({"path": "x", "topic": "a/b/c", "topicspattern": ".*"}, "topics are asked for twice"),
        ({"path": "x", "records.token": "y"}, "where are the records"),
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


def test_values_of_storage_and_records_options_are_not_shown():
    given = {"path": "x", "storage.secret": "hunter2", "records": "y", "records.token": "hunter2"}
    given["keyProvider"] = "vault:token=hunter2"
    assert "hunter2" not in repr(parse_options(given))
