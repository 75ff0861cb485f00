"""What engines are asked to read: golden topics, by the options of `scan`, and the rows that it gives."""

import pytest
from golden import BROKER
from tiers import lay_out_broker_objects

from pulsar_offload import open_tier, scan

TOPICS = ["json", "nobatch", "txn", "chunk", "jstring", "jmisc", "avro"]
AVRO = {"topics": "acme/cold/avro", "schemas": str(BROKER / "topics" / "avro" / "schemas.json")}
TRANSACTIONS = {
    "topics": ["acme/cold/txn"],
    "isolation": "uncommitted",
    "columns": [
        "__entryId",
        "__txnState",
        "__txnIdMost",
        "__nullValue",
        "__replicateTo",
        "__messageProperties",
    ],
}
READS = {
    "several topics": {"topics_pattern": "acme/cold/.*", "task_bytes": 50_000},
    "committed transactions": {"topics": "acme/cold/txn", "task_bytes": 1},
    "outcomes of transactions": TRANSACTIONS,
    "nested columns of two versions": AVRO,
    "entries": {"topics": ["acme/cold/json"], "level": "entries", "task_bytes": 10_000},
    "no rows": {"topics": ["acme/cold/json", "acme/cold/nobatch"], "start": "latest"},
    "no rows of nested columns": AVRO | {"start": "latest"},
}


@pytest.fixture(scope="session")
def tier(tmp_path_factory):
    root = tmp_path_factory.mktemp("broker")
    lay_out_broker_objects(root, TOPICS)
    return root


@pytest.fixture(params=READS)
def options(request):
    """The keywords of one read."""
    return READS[request.param]


@pytest.fixture
def planned(tier, options):
    """That read as a scan."""
    with open_tier(tier) as opened:
        yield scan(opened, **{"topics": ()} | options)


@pytest.fixture
def expected(planned, options):
    """Its rows."""
    table = planned.to_table()
    assert (table.num_rows == 0) is ("start" in options)
    return table


@pytest.fixture
def reads():
    """The keywords of all reads by their names."""
    return READS
