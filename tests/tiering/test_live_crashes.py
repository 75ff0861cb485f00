"""A live offload ends at any call of any store or broker: nothing is lost, and the next run finishes it."""

import pytest
from scenes.live_topics import LiveTopic, offload_due
from tiers import uuid_of


def offload(topic, points):
    topic.offload(points)


@pytest.mark.long
def test_an_offload_may_end_at_every_call(crash_matrix):
    calls = crash_matrix(LiveTopic, offload, check=LiveTopic.check, check_done=LiveTopic.check_done, every=24)
    assert {
        *("put", "audit", "hot read", "write_block", "write_index"),
        *("broker unload", "broker stats", "broker read"),
    } <= set(calls)


@pytest.mark.long
def test_the_deletion_of_a_copy_that_no_record_can_get_may_end_at_every_call(crash_matrix):
    def taken_by_the_broker(folder):
        """The broker has begun to offload a ledger whose copy is complete here."""
        topic = LiveTopic(folder, entries=(3, 2))
        cluster = topic.cluster()
        give = cluster.records.update

        def begin_first(*given, **how):
            topic.begin_offload(min(topic.payloads), uuid_of(7))
            return give(*given, **how)

        cluster.records.update = begin_first
        offload_due(cluster)
        return topic

    def check_done(topic, where):
        topic.check_done(where, but=(min(topic.payloads),))

    calls = crash_matrix(taken_by_the_broker, offload, check=LiveTopic.check, check_done=check_done, every=12)
    assert "delete" in calls
