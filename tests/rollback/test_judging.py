"""Which streaming objects may go: each thing that records can say, not say, or contradict the tier in."""

from dataclasses import replace

import pytest
from entries import read_whole
from mapfiles import mapfile
from records import closed, copied, failed, new_copy, segment, still_open
from scenes.rollbacks import (
    NAMED,
    NAMELESS,
    ORDERS,
    in_one_object,
    in_segments,
    put_segment,
    put_whole,
    topic,
)
from tiers import Names, put, uuid_of

from offload_core.format.codec.object_marks import LOST_KEY
from offload_core.maintenance.rollback import Allowed, Verdict, judge_tier
from offload_core.metadata.catalogue import parse_topic
from offload_core.metadata.records import (
    CopyForm,
    DriverMetadata,
    ManagedLedgerInfo,
    OffloadContext,
    abandon_replacement,
    begin_replacement,
)
from offload_core.storage.tier import Tier
from offload_hooks.testing import MemoryDriver

OTHERS = Names(managed_ledger="acme/cold/persistent/others", cluster=None)


@pytest.fixture
def tier():
    return Tier(MemoryDriver())


def judged(tier, records):
    (found,) = judge_tier(tier, lambda: records)
    return found


def verdicts(tier, records):
    return [each.verdict for each in judge_tier(tier, lambda: records)]


def shares(*ends, gone=False):
    made = []
    for number, end, status in ends:
        share = segment(uuid_of(number), end, complete=status == "offloaded")
        made.append(failed(share) if status == "failed" else share)
    return OffloadContext.of_segments(made, bookkeeper_deleted=gone)


def a_segment(*ledgers, number=1, **options):
    return lambda tier: put_segment(tier, number, *ledgers, **options)


def an_object(number, ledger_id):
    return lambda tier: put_whole(tier, number, ledger_id, 3)


def data(key, content, names=NAMED, part="data"):
    return lambda tier: put(tier, key, content, names.as_metadata(part))


def of_mapfile(tier):
    written = mapfile([b"1", b"2", b"3"], ledger_id=5)
    for part, content in (("data", written.data), ("index", written.index)):
        put(tier, f"a/acme/cold/persistent/orders/5-{uuid_of(8)}/{part}", content, {})


FIVE = a_segment((5, 0, 3))
FIVE_AND_SIX = a_segment((5, 0, 3), (6, 0, 3))
DATA_OF_FIVE = a_segment((5, 0, 3), parts=["data"])
NAMELESS_DATA = a_segment((5, 0, 3), parts=["data"], names=NAMELESS)
BROKEN_INDEX = data(f"{uuid_of(1)}-index", b"\x3d\x1f\xb0\xbc", part="index")
A_CAT = data(str(uuid_of(1)), b"a picture of a cat", Names())
FREE, HOT, NEEDED, UNKNOWN = Verdict.FREE, Verdict.HOT, Verdict.NEEDED, Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("puts", "ledgers", "expected"),
    [
        # objects that records name
        ([FIVE_AND_SIX], [in_segments(5, 3, (1, 2)), in_segments(6, 3, (1, 2))], HOT),
        ([DATA_OF_FIVE], [closed(5, 3, shares((1, None, "assigned")))], Verdict.UNFINISHED),
        ([DATA_OF_FIVE], [closed(5, 3, shares((1, None, "failed")))], HOT),
        # a segment that failed is no copy
        ([FIVE], [closed(5, 3, shares((2, 2, "offloaded"), (1, 2, "failed"), gone=True))], FREE),
        # a ledger that is marked for deletion needs nothing
        ([FIVE], [closed(5, 3, shares((1, 2, "assigned"), gone=True))], FREE),
        ([FIVE], [closed(5, 3, shares((1, 2, "failed"), gone=True))], FREE),
        ([FIVE], [closed(5, 3, copied(uuid_of(9), complete=False, bookkeeper_deleted=True))], FREE),
        # an object that cannot be read is kept all the same
        ([NAMELESS_DATA], [in_segments(5, 3, (1, 2), gone=True)], NEEDED),
        ([NAMELESS_DATA], [in_segments(5, 3, (1, 2))], HOT),
        # objects that no record names, by their ledgers
        ([FIVE, an_object(8, 5)], [closed(5, 3)], FREE),
        ([FIVE, an_object(8, 5)], [in_one_object(5, 3, 8)], FREE),
        ([FIVE, an_object(8, 5)], [in_one_object(5, 3, 9)], NEEDED),  # its one object is not here
        ([FIVE, an_object(8, 5)], [in_one_object(5, 3, 9, gone=False)], FREE),
        ([FIVE], [in_segments(5, 3, (2, 2), gone=True)], NEEDED),  # the other segment is not here
        ([FIVE], [in_segments(5, 9, (2, 2), complete=False, gone=True)], NEEDED),
        ([FIVE], [in_segments(5, 9, (2, 2), complete=False)], FREE),
        # what cannot be read and no record names may be anything
        ([FIVE, BROKEN_INDEX], [closed(5, 3)], UNKNOWN),
        ([FIVE, BROKEN_INDEX], [in_segments(5, 3, (1, 2))], HOT),
        ([a_segment((5, 0, 3), names=replace(NAMED, version="2"))], [closed(5, 3)], UNKNOWN),
        # an old ledger that its topic does not have any more needs nothing, and a new one may
        ([FIVE], [still_open(6)], FREE),
        ([FIVE], [closed(4, 2)], UNKNOWN),  # these records are older than the object
        ([FIVE], [], UNKNOWN),
        # objects of another topic, or of none: another cluster may have a ledger 5 as well
        ([a_segment((5, 0, 3), names=OTHERS)], [closed(5, 3)], UNKNOWN),
        ([a_segment((5, 0, 3), names=OTHERS)], None, UNKNOWN),
        ([a_segment((5, 0, 3), names=NAMELESS)], [closed(5, 3)], UNKNOWN),
        ([a_segment((5, 0, 3), names=NAMELESS)], [closed(6, 3)], UNKNOWN),
        # the worst of several ledgers counts, also of one that only the index lists
        ([FIVE_AND_SIX], [in_segments(5, 3, (1, 2), gone=True)], UNKNOWN),
        ([FIVE_AND_SIX], [in_segments(5, 3, (1, 2)), in_one_object(6, 3, 9)], NEEDED),
        ([FIVE_AND_SIX], [in_segments(5, 3, (1, 2)), closed(6, 3)], HOT),
        # half of an object that no record names was given up
        ([DATA_OF_FIVE], [closed(5, 3)], FREE),
        ([DATA_OF_FIVE], None, UNKNOWN),
        ([NAMELESS_DATA], [closed(5, 3)], UNKNOWN),
        # another program's object is never judged by records
        ([A_CAT], [in_segments(5, 3, (1, 2), gone=True)], Verdict.FOREIGN),
        # a record that names a streaming object as the ledger's own is not believed
        ([FIVE], [in_one_object(5, 3, 1)], NEEDED),
        ([FIVE, an_object(1, 5)], [in_one_object(5, 3, 1)], FREE),
        # a copy in a MapFile and in a folder; the record of the second names a driver of other objects
        (
            [a_segment((5, 0, 3), folder="a/"), of_mapfile],
            [closed(5, 3, copied(uuid_of(8), bookkeeper_deleted=True, driver=None))],
            FREE,
        ),
        ([a_segment((5, 0, 3), folder="a/"), of_mapfile], [in_one_object(5, 3, 8)], NEEDED),
    ],
)
def test_an_object_is_judged_by_records(tier, puts, ledgers, expected):
    for each in puts:
        each(tier)
    assert judged(tier, {} if ledgers is None else topic(*ledgers)).verdict is expected


def test_the_only_copy_of_one_ledger_keeps_an_object_of_several(tier):
    put_segment(tier, 1, (5, 0, 3), (6, 0, 4))
    found = judged(tier, topic(in_segments(5, 3, (1, 2), gone=True), in_segments(6, 4, (1, 3))))
    assert found.verdict is NEEDED
    assert found.why == "ledger 5: its hot copy is gone, and this segment is its only copy"
    assert [(each.ledger_id, each.verdict) for each in found.ledgers] == [(5, NEEDED), (6, HOT)]
    assert found.topics == (ORDERS,)


def test_the_record_names_an_objects_topic_whatever_its_user_metadata_does(tier):
    put_segment(tier, 1, (5, 0, 3), names=OTHERS)
    found = judged(tier, topic(in_segments(5, 3, (1, 2), gone=True)))
    assert (found.verdict, found.topics) == (NEEDED, (ORDERS,))


@pytest.mark.parametrize("parts", [["data"], ["data", "index"]])
def test_an_object_of_a_cluster_is_known_only_if_a_record_names_it(tier, parts):
    put_segment(tier, 1, (5, 0, 3), names=Names(cluster="west"), parts=parts)
    found = judged(tier, topic(closed(5, 3)))
    assert (found.verdict, found.topics) == (UNKNOWN, (ORDERS,))
    assert found.why == "it is of cluster west, and no record names it"
    assert judged(tier, topic(in_segments(5, 3, (1, 2)))).verdict is HOT


def test_what_other_segments_have_is_not_needed_if_these_are_whole(tier):
    record = in_segments(5, 5, (2, 2), (3, 4), gone=True)
    put_segment(tier, 1, (5, 0, 3))
    put_segment(tier, 2, (5, 0, 3))
    put_segment(tier, 3, (5, 3, 2), parts=["data"])
    assert verdicts(tier, topic(record)) == [NEEDED] * 3
    put_segment(tier, 3, (5, 3, 2))
    assert verdicts(tier, topic(record)) == [FREE, NEEDED, NEEDED]


def test_a_segment_that_lost_entries_does_not_stand_for_another(tier):
    record = in_segments(5, 3, (2, 2), gone=True)
    for number in (1, 2):
        put_segment(tier, number, (5, 0, 3))
    assert verdicts(tier, topic(record))[0] is FREE
    for key in (str(uuid_of(2)), f"{uuid_of(2)}-index"):
        metadata = {**tier.stat(key).user_metadata, LOST_KEY: "1 entries: 5:1"}
        tier.write_index(key, read_whole(tier, key), user_metadata=metadata)
    assert verdicts(tier, topic(record)) == [NEEDED] * 2


def test_a_copy_that_is_about_to_take_anothers_place_is_left_alone(tier):
    put_segment(tier, 1, (5, 0, 3))
    put_whole(tier, 8, 5, 3)
    info, uuid = ManagedLedgerInfo(ledgers=(in_one_object(5, 3, 8),)), uuid_of(1)
    begun = begin_replacement(
        info, new_copy(uuid, 5, form=CopyForm.SEGMENT, driver=DriverMetadata(name="local"))
    )
    assert judged(tier, {ORDERS: begun}).verdict is Verdict.UNFINISHED
    assert judged(tier, {ORDERS: abandon_replacement(begun, uuid)}).verdict is FREE


def test_without_records_nothing_is_known_not_to_be_needed(tier):
    put_segment(tier, 1, (5, 0, 3))
    put_segment(tier, 2, (6, 0, 3), parts=["index"], names=NAMELESS)
    put(tier, str(uuid_of(3)), b"a picture of a cat", {})
    one, two, three = judge_tier(tier, None)
    assert (one.verdict, two.verdict, three.verdict) == (UNKNOWN, UNKNOWN, Verdict.FOREIGN)
    assert [(each.ledger_id, each.topic) for each in one.ledgers] == [(5, ORDERS)]
    assert ([each.ledger_id for each in two.ledgers], two.topics) == ([6], ())


# --- choosing ----------------------------------------------------------------------------------


def test_only_what_is_of_the_topics_that_are_named(tier):
    partition = Names(managed_ledger="acme/cold/persistent/parts-partition-3")
    put_segment(tier, 1, (5, 0, 3))
    put_segment(tier, 2, (6, 0, 3), names=partition)
    put_segment(tier, 3, (7, 0, 3), names=NAMELESS)

    def chosen(*names):
        topics = [parse_topic(name) for name in names]
        return [each.object.key.data_key[-1] for each in judge_tier(tier, None, topics=topics)]

    assert chosen() == ["1", "2", "3"]
    assert chosen("acme/cold/orders") == ["1"]
    assert chosen("acme/cold/parts", "acme/cold/orders") == ["1", "2"]
    assert chosen("acme/cold/parts-partition-3") == ["2"]
    assert chosen("acme/cold/part") == []


def test_only_what_lies_in_a_folder(tier):
    put_segment(tier, 1, (5, 0, 3), folder="a/")
    put_segment(tier, 2, (5, 0, 3), folder="b/")
    assert [each.object.key.folder for each in judge_tier(tier, None, prefix="b/")] == ["b/"]


def test_the_tier_is_listed_before_the_records_are_read(tier):
    def read():
        put_segment(tier, 1, (5, 0, 3))  # another process writes, after the listing
        return topic()

    assert judge_tier(tier, read) == []


def test_what_may_be_deleted():
    def allowed(**given):
        return {verdict for verdict in Verdict if Allowed(**given).allows(verdict)}

    assert allowed() == {Verdict.FREE, Verdict.HOT}
    assert allowed(recorded=False) == {Verdict.FREE}
    assert allowed(loss=True) == {Verdict.FREE, Verdict.HOT, Verdict.NEEDED}
