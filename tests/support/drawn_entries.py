"""Entries of any kind to draw at random, as clients and brokers write them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from entries import CODECS, batch_entry, encrypted_entry, entry, marker, single

from offload_proto.messages_pb2 import BrokerEntryMetadata

UNKNOWN_FIELDS = (
    bytes([0xFA, 0x3E, 3]) + b"new",  # 1007, bytes
    bytes([0x80, 0x3F, 0x80, 0x01]),  # 1008, varint
    bytes([0x8D, 0x3F, 1, 2, 3, 4]),  # 1009, fixed32
    bytes([0x91, 0x3F, 1, 2, 3, 4, 5, 6, 7, 8]),  # 1010, fixed64
    bytes([0xFA, 0xFF, 0xFF, 0xFF, 0x0F, 0]),  # 2^29 - 1, empty
    bytes([0x0D, 1, 2, 3, 4]),  # 1 with another wire type
    bytes([0x12, 1, 9]),  # 2 with another wire type
)


def number(random: Random) -> int:
    """Mostly small, now and then any unsigned number of 64 bits."""
    return random.randint(0, 40) if random.randrange(4) else random.choice((2**63 - 1, 2**63, 2**64 - 1))


def text(random: Random) -> str:
    return "".join(random.choice("abkлюч") for _ in range(random.choice((0, 1, 3, 8))))


def drawn_fields(random: Random) -> dict[str, Any]:
    """Some of the fields of an entry's metadata."""
    makers: dict[str, Callable[[], Any]] = {
        "producer_name": lambda: text(random),
        "sequence_id": lambda: random.choice((0, 5, 2**64 - 1, 2**63)),
        "publish_time": lambda: random.choice((0, 1_700_000_000_000 + random.randrange(9), 2**64 - 1)),
        "event_time": lambda: random.choice((0, 1_700_000_000_000, 2**63 - 1)),
        "schema_version": lambda: random.randbytes(random.randrange(9)),
        "ordering_key": lambda: random.randbytes(random.randrange(5)),
        "replicated_from": lambda: text(random),
        "replicate_to": lambda: [text(random) for _ in range(random.randrange(3))],
        "deliver_at_time": lambda: random.choice((-1, 0, 2**63 - 1)),
        "txnid_least_bits": lambda: random.choice((0, 1, 2**64 - 1)),
        "txnid_most_bits": lambda: random.choice((0, 1)),
        "uuid": lambda: text(random),
        "properties": lambda: [(text(random), text(random)) for _ in range(random.randrange(4))],
        "partition_key": lambda: text(random),
        "chunk_id": lambda: random.choice((-1, 0, 2**31 - 1)),
        "total_chunk_msg_size": lambda: random.choice((-1, 0, 2**31 - 1)),
        "highest_sequence_id": lambda: number(random),
        "null_value": lambda: True,
        "unknown": lambda: random.choice(UNKNOWN_FIELDS),
    }
    return {name: make() for name, make in makers.items() if not random.randrange(3)}


def drawn_frame(random: Random) -> dict[str, Any]:
    broker = BrokerEntryMetadata(broker_timestamp=number(random), index=number(random))
    return {
        "checksum": bool(random.randrange(3)),
        "broker": broker if not random.randrange(3) else None,
        "compression": random.choice(list(CODECS)),
    }


def drawn_entry(random: Random) -> bytes:
    """An entry of any kind, as clients and brokers write them."""
    kind = random.randrange(8)
    options = drawn_fields(random)
    value = random.choice((b"", random.randbytes(random.randrange(60)), b"ab" * random.randrange(300)))
    if kind < 2:
        return entry(value, **options | drawn_frame(random))
    if kind < 5:
        messages = [
            single(
                random.choice((None, value, random.randbytes(random.randrange(20)))),
                properties=[(text(random), text(random)) for _ in range(random.choice((0, 0, 1, 3)))],
                **{
                    name: made
                    for name, made in {
                        "compacted_out": True,
                        "event_time": 1_700_000_000_000,
                        "sequence_id": 2**64 - 1,
                        "ordering_key": b"ok",
                        "partition_key": text(random),
                        "partition_key_b64_encoded": False,
                        "null_partition_key": True,
                    }.items()
                    if not random.randrange(4)
                },
            )
            for _ in range(random.choice((0, 1, 2, 5, 12)))
        ]
        options.pop("null_value", None)
        return batch_entry(messages, singles=True, **options | drawn_frame(random))
    if kind == 5:
        return encrypted_entry(value, **options | drawn_frame(random))
    if kind == 6:
        return entry(value, **options | drawn_frame(random) | {"num_chunks_from_msg": random.randint(1, 3)})
    ids = {name: made for name, made in options.items() if name.startswith(("txn", "publish"))}
    return marker(random.choice((0, 10, 12, 20, 21, 22)), **ids)
