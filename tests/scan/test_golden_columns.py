"""Every topic of the golden brokers, in every column there is: by Arrow."""

from pathlib import Path

import pytest
from golden import BROKER, TOPICS, assert_columns_are_as_expected, entries_of
from mapfiles import FILESYSTEM, FILESYSTEM_TOPICS, lay_out_golden
from tiers import lay_out_broker_objects

from offload_core.format.messages.message_columns import EXTRA_MESSAGE_COLUMNS, MESSAGE_COLUMNS
from pulsar_offload import open_tier, scan

EVERYTHING = [*MESSAGE_COLUMNS, *EXTRA_MESSAGE_COLUMNS]


@pytest.fixture(scope="module")
def tiers(tmp_path_factory):
    """By the golden broker: a tier of what it offloaded."""
    made = {broker: tmp_path_factory.mktemp("tier") for broker in (BROKER, FILESYSTEM)}
    lay_out_broker_objects(made[BROKER])
    lay_out_golden(made[FILESYSTEM])
    return made


@pytest.mark.parametrize(
    ("broker", "topic"),
    [(BROKER, topic) for topic in TOPICS if topic != "chunk"]
    + [(FILESYSTEM, topic) for topic in FILESYSTEM_TOPICS],
    ids=lambda each: each.name if isinstance(each, Path) else each,
)
def test_every_column_of_every_message_is_right(tiers, broker, topic, caplog):
    with open_tier(tiers[broker]) as tier:
        planned = scan(tier, f"acme/cold/{topic}", columns=EVERYTHING)
        rows = planned.to_table().to_pylist(maps_as_pydicts="strict")
        judged = assert_columns_are_as_expected(rows, topic, entries_of(tier, topic), broker)
    assert judged == set(EVERYTHING)
    assert caplog.messages == [], "nothing is passed on raw"


def test_golden_topics_have_all_kinds_of_messages(tiers):
    with open_tier(tiers[BROKER]) as tier:
        table = scan(tier, columns=EVERYTHING).to_table()
    assert set(table["__compression"].to_pylist()) == {0, 1, 3, 4}
    assert set(table["__batchIndex"].to_pylist()) >= {-1, 0, 1}
    for column in ("__nullValue", "__keyIsBase64", "__orderingKey", "__schemaVersion", "__eventTime"):
        assert any(table[column].to_pylist()), column
