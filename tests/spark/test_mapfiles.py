"""The Spark source over what Pulsar's filesystem offloader stored, on this machine and in HDFS."""

import itertools
import os

import pytest
from golden import assert_topic_is_as_expected
from mapfiles import FILESYSTEM, FILESYSTEM_OBJECTS, FILESYSTEM_TOPICS

from offload_core.format.messages.message_columns import EXTRA_MESSAGE_COLUMNS, MESSAGE_COLUMNS
from offload_core.storage.tier import open_store

pytestmark = [pytest.mark.spark, pytest.mark.sampled(6)]

_numbers = itertools.count()


def read(spark, url, topic, **storage):
    options = {
        "driver": "filesystem",
        "topic": f"acme/cold/{topic}",
        "columns": ",".join([*MESSAGE_COLUMNS, *EXTRA_MESSAGE_COLUMNS]),
        "minPartitions": 2,
        **{f"storage.{name}": value for name, value in {"fileSystemURI": url, **storage}.items()},
    }
    return spark.read.format("pulsar_offload").options(**options).load()


def rows_of(frame):
    return frame.toArrow().to_pylist(maps_as_pydicts="strict")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("topic", FILESYSTEM_TOPICS)
def test_a_topic_on_this_machine_is_what_a_client_read(spark, topic):
    frame = read(spark, f"file://{FILESYSTEM_OBJECTS}", topic)
    assert_topic_is_as_expected(rows_of(frame), topic, FILESYSTEM)


@pytest.mark.nightly
def test_a_topic_in_hdfs_is_what_a_client_read(spark, minihdfs):
    url = f"{minihdfs.url}/spark-filesystem-{os.getpid()}-{next(_numbers)}"
    with open_store(url, user=minihdfs.superuser) as store:
        for path in FILESYSTEM_OBJECTS.rglob("*"):
            if path.name in ("data", "index"):
                store.write_index(str(path.relative_to(FILESYSTEM_OBJECTS)), path.read_bytes())
    frame = read(spark, url, "batch", user=minihdfs.superuser)
    assert_topic_is_as_expected(rows_of(frame), "batch", FILESYSTEM)
