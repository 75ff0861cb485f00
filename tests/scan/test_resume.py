"""Where a scan goes on that has read topics before."""

import pytest
from scenes.exports import add_ledger, messages

from offload_core.metadata.catalogue import TopicName
from offload_core.reading.scan import Position
from offload_hooks.errors import DataLossError, OptionError
from pulsar_offload import open_tier, scan

TOPIC = TopicName("persistent://acme/cold/orders-partition-0")


@pytest.fixture
def tier(tmp_path):
    """Ledgers 4 and 9, each of messages 0, 1, 2:0, 2:1, 3, 4, 5:0, 5:1."""
    for ledger_id in (4, 9):
        add_ledger(tmp_path, ledger_id, messages(str(ledger_id), 6))
    return tmp_path


def read(tier, reached, **options):
    with open_tier(tier) as reader:
        rows = scan(reader, resume=reached, **options).to_table().to_pylist()
    return [(row["__ledgerId"], row["__entryId"], max(row["__batchIndex"], 0)) for row in rows]


ALL = [
    (ledger, *place)
    for ledger in (4, 9)
    for place in ((0, 0), (1, 0), (2, 0), (2, 1), (3, 0), (4, 0), (5, 0), (5, 1))
]


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    "position",
    [Position(*place) for place in ALL]
    + [Position(4, 6), Position(5, 0), Position(9, 6), Position(10, 0), Position(0, 0)],
)
def test_what_comes_from_the_position_on_is_read(tier, position):
    wanted = [place for place in ALL if Position(*place) >= position]
    assert read(tier, {TOPIC: position}) == wanted


def test_topics_without_a_position_begin_at_the_start(tier):
    assert read(tier, {}) == ALL
    assert read(tier, {}, start={TOPIC: Position(9, 5, 1)}) == ALL[-1:]
    assert read(tier, {}, start="latest") == []
    assert read(tier, {TOPIC: Position(9, 5)}, start={TOPIC: Position(4, 0)}) == ALL[-2:]


def test_topics_that_are_gone_are_passed_over(tier):
    assert read(tier, {TopicName("persistent://a/b/c"): Position(1, 1)}) == ALL


def test_the_rest_of_a_ledger_that_is_gone_is_lost(tier):
    with pytest.raises(DataLossError, match="5:3:0"):
        read(tier, {TOPIC: Position(5, 3)})
    assert read(tier, {TOPIC: Position(5, 3)}, fail_on_data_loss=False) == ALL[8:]


def test_a_start_of_a_topic_that_is_not_read_is_refused(tier):
    with pytest.raises(OptionError, match="start names a topic"):
        read(tier, {}, start={TopicName("persistent://a/b/c"): Position(1, 1)})
