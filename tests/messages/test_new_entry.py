"""Entries made of messages are, byte for byte, those of Pulsar's own client, and read back as what they were."""

from __future__ import annotations

import pytest
from entries import read_object
from golden import topic_objects
from hypothesis import given
from hypothesis import strategies as st

from offload_core.format.messages.compression import Compression
from offload_core.format.messages.entry import (
    NewMessage,
    TransactionId,
    pack_entry,
    pack_marker,
    read_messages,
    split_entry,
)
from offload_hooks.errors import OptionError

MAX_MESSAGE_BYTES = 1 << 20

messages = st.builds(
    NewMessage,
    value=st.none() | st.binary(max_size=40),
    key=st.none() | st.text(max_size=5),
    ordering_key=st.none() | st.binary(max_size=5),
    properties=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
    event_time_ms=st.none() | st.integers(1, 2**40),
)


def field_of(metadata, name):
    return getattr(metadata, name) if metadata.HasField(name) else None


def as_new(parts):
    """What was sent, of an entry that was read."""
    return [
        NewMessage(
            value=message.value,
            key=field_of(message.metadata, "partition_key"),
            ordering_key=field_of(message.metadata, "ordering_key"),
            properties={each.key: each.value for each in message.metadata.properties},
            event_time_ms=field_of(message.metadata, "event_time"),
        )
        for message in read_messages(parts, max_message_bytes=MAX_MESSAGE_BYTES)
    ]


@pytest.mark.parametrize(("topic", "producer", "count"), [("batch", "py-batch", 50), ("json", "", 60)])
def test_what_the_python_client_sent_is_made_again_byte_for_byte(topic, producer, count):
    made = 0
    for stored in topic_objects(topic):
        for _, _, entry in read_object(stored.data, stored.index, stored.key):
            parts = split_entry(entry)
            metadata = parts.metadata
            is_batch = metadata.HasField("num_messages_in_batch")
            if not is_batch or producer not in ("", metadata.producer_name):
                continue
            again = pack_entry(
                as_new(parts),
                producer_name=metadata.producer_name,
                sequence_id=metadata.sequence_id,
                publish_time_ms=metadata.publish_time,
                schema_version=field_of(metadata, "schema_version"),
            )
            assert again == entry
            made += 1
    assert made >= count


@given(
    sent=st.lists(messages, min_size=1, max_size=5),
    sequence_id=st.integers(0, 2**40),
    compression=st.sampled_from(Compression),
)
def test_messages_are_read_back_as_they_were(sent, sequence_id, compression):
    entry = pack_entry(
        sent, producer_name="p", sequence_id=sequence_id, publish_time_ms=17, compression=compression
    )
    parts = split_entry(entry)
    assert as_new(parts) == sent
    read = read_messages(parts, max_message_bytes=MAX_MESSAGE_BYTES)
    assert [message.metadata.sequence_id for message in read] == [
        *range(sequence_id, sequence_id + len(sent))
    ]
    assert (parts.metadata.producer_name, parts.metadata.publish_time) == ("p", 17)


def test_an_entry_of_no_message_is_refused():
    with pytest.raises(OptionError, match="without messages"):
        pack_entry([], producer_name="p", sequence_id=0, publish_time_ms=17)


def test_a_brokers_markers_are_made_again_byte_for_byte():
    kinds = []
    for stored in topic_objects("txn"):
        for _, _, entry in read_object(stored.data, stored.index, stored.key):
            metadata = split_entry(entry).metadata
            if metadata.HasField("marker_type"):
                kinds.append(metadata.marker_type)
                again = pack_marker(
                    TransactionId(metadata.txnid_most_bits, metadata.txnid_least_bits),
                    commits=metadata.marker_type == 21,
                    publish_time_ms=metadata.publish_time,
                )
                assert again == entry
    assert set(kinds) == {21, 22}
    assert len(kinds) > 50


@given(most=st.integers(-(2**63), 2**63 - 1), least=st.integers(-(2**63), 2**63 - 1))
def test_a_transaction_is_in_the_metadata_as_unsigned_bits(most, least):
    transaction = TransactionId(most, least)
    sent = pack_entry(
        [NewMessage(value=b"x")], producer_name="p", sequence_id=1, publish_time_ms=2, transaction=transaction
    )
    for entry in (sent, pack_marker(transaction, commits=True, publish_time_ms=2)):
        metadata = split_entry(entry).metadata
        assert metadata.txnid_most_bits == most % 2**64
        assert metadata.txnid_least_bits == least % 2**64
