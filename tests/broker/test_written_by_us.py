"""Objects that we wrote in the place of a broker's are served by the broker once BookKeeper has nothing left.

By the codec alone, in blocks of any size; and as users do, out of a hot tier by the ledger offloader.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pulsar
import pytest
from entries import read_whole, rewritten
from in_their_place import PART_BYTES, keys_of, offload_in_its_place
from live.broker import Place, produce
from live.sent import TOPICS

from offload_core.format.codec.decoder import parse_index
from offload_core.storage.hot import FileLedgerStore
from offload_core.storage.tier import upload_blocks

pytestmark = pytest.mark.sampled(6)

LARGEST_MESSAGE_BYTES = PART_BYTES - 130
"""A message that its entry makes larger than a block of `PART_BYTES`, and that the broker still takes."""


def large_messages(client, topic):
    """Three ledgers of some MB each; one message is larger than a block."""
    random_ = random.Random(17)
    sizes = [random_.randrange(300_000, 900_000) for _ in range(45)]
    sizes[27] = LARGEST_MESSAGE_BYTES
    messages: Iterator[Mapping[str, Any]] = ({"content": random_.randbytes(size)} for size in sizes)
    return produce(client, topic, messages, batching_enabled=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A topic, and how large our blocks are (the broker's have 64 MiB)."""

    send: Callable[[pulsar.Client, str], dict[Place, int]]
    max_block_bytes: int


CASES = {
    "many-small-blocks": Case(send=TOPICS["compression-lz4"], max_block_bytes=4096),
    "an-entry-larger-than-a-block": Case(send=large_messages, max_block_bytes=PART_BYTES),
}


def parts_of(written):
    """The blocks of a data object, joined until S3 takes them as a part."""
    (ledger,) = parse_index(written.index, written.key).ledgers
    parts = [b""]
    for block in ledger.blocks:
        if len(parts[-1]) >= PART_BYTES:
            parts.append(b"")
        parts[-1] += written.data[block.offset : block.offset + block.length]
    return parts


def write_in_its_place(tier, key, max_block_bytes):
    """Delete the broker's objects; write the same entries and metadata with our codec under the same keys.

    True if our bytes differ from the broker's: they are the same where the ledger fits one of our blocks.
    """
    data, index = read_whole(tier, key.data_key), read_whole(tier, key.index_key)
    ours = rewritten(data, index, key, max_block_bytes)
    user_metadata = [tier.stat(name).user_metadata for name in (key.data_key, key.index_key)]
    tier.delete([key.data_key, key.index_key])
    parts = parts_of(ours)
    upload_blocks(
        tier,
        key.data_key,
        parts,
        block_bytes=max(map(len, parts)),
        total_bytes=len(ours.data),
        user_metadata=user_metadata[0],
    )
    tier.write_index(key.index_key, ours.index, user_metadata=user_metadata[1])
    return (ours.data, ours.index) != (data, index)


def test_what_the_offloader_wrote_out_of_a_hot_tier_is_served(live, tmp_path):
    cold = live.new_cold_namespace()
    topic = live.send(cold.topic("hot"), large_messages)
    ledgers = live.admin.offload_all(topic.name)
    keys = keys_of(ledgers)
    with cold.store.open() as tier, closing(FileLedgerStore(tmp_path / "hot", sync="never")) as hot:
        written = [offload_in_its_place(tier, key, hot) for key in keys]
    assert [(each.ledger_id, each.entries) for each in written] == [
        (ledger.ledger_id, ledger.entries) for ledger in ledgers
    ]
    assert max(each.blocks for each in written) > 1
    live.admin.drop_bookkeeper_copies(topic.name)
    assert not [ledger for ledger in live.admin.ledgers(topic.name)[:-1] if ledger.in_bookkeeper]
    live.assert_serves(topic, [len(topic.read) // 2])


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_consumers_and_readers_get_every_message(live, case):
    cold = live.new_cold_namespace()
    topic = live.send(cold.topic("ours"), case.send)
    ledgers = live.admin.offload_all(topic.name)
    keys = keys_of(ledgers)
    assert len(keys) == len(ledgers) >= 3
    with cold.store.open() as tier:
        changed = [write_in_its_place(tier, key, case.max_block_bytes) for key in keys]
    assert any(changed)
    live.admin.drop_bookkeeper_copies(topic.name)
    assert not [ledger for ledger in live.admin.ledgers(topic.name)[:-1] if ledger.in_bookkeeper]
    live.assert_serves(topic, (1, len(topic.read) // 2, len(topic.read) - 1))
