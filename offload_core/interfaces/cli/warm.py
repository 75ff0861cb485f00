"""`offload warm`: compile what reading needs before the first query does, on a machine or into an image.

Messages of each kind are offloaded into a temporary folder, and read from there.
"""

from __future__ import annotations

import base64
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import typer
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

from offload_core.format.kernel import share_compiled
from offload_core.format.messages.compression import Compression
from offload_core.format.messages.entry import NewMessage, TransactionId, pack_entry, pack_marker
from offload_core.format.messages.message_columns import EXTRA_MESSAGE_COLUMNS, MESSAGE_COLUMNS
from offload_core.format.schemas.json_decoder import FEW
from offload_core.interfaces.cli.command_options import command
from offload_core.interfaces.cli.terminal import out
from offload_core.metadata.catalogue import open_tier
from offload_core.reading.scan import scan
from offload_core.storage.hot import FileLedgerStore
from offload_core.storage.tier import open_store
from offload_core.writing.offload import LedgerOffloader
from offload_hooks.errors import OffloadError

_NOW_MS = 1_700_000_000_000
_ALL = (*MESSAGE_COLUMNS, *EXTRA_MESSAGE_COLUMNS)
_MESSAGES = [
    NewMessage(value=b"value" * 20, key="key", properties={"name": "value"}, event_time_ms=_NOW_MS),
    NewMessage(value=None, ordering_key=b"key"),
]
_TRANSACTION = TransactionId(0, 1)
_RECORD = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}],
}


@command()
def warm(
    shared: Annotated[
        bool,
        typer.Option(
            "--shared", help="For all users, as in an image that is built by one and run by another."
        ),
    ] = False,
) -> None:
    """Compile what reading messages needs, so that the first query does not.

    What is compiled is kept beside the package, or in the user's cache, for this kind of processor.

    Examples:
        offload warm
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="offload-warm-") as folder:
        _read_all(Path(folder))
    if shared and (place := share_compiled()) is None:
        raise OffloadError(
            "what is compiled is kept for this user alone",
            hint="Install the package where this user can write, and leave NUMBA_CACHE_DIR out.",
        )
    out.print(
        f"compiled in {time.monotonic() - began:.1f} s" + (f", for all users: {place}" if shared else "")
    )


def _read_all(folder: Path) -> None:
    plain = [
        *(_packed(_MESSAGES, compression) for compression in Compression),
        pack_entry(
            _MESSAGES, producer_name="warm", sequence_id=9, publish_time_ms=_NOW_MS, transaction=_TRANSACTION
        ),
        pack_marker(_TRANSACTION, commits=True, publish_time_ms=_NOW_MS),
    ]
    records = [_packed([NewMessage(value=b"\x02\x02a")]), _packed([NewMessage(value=b"\x04\x02b")] * 2)]
    fields = [_packed([NewMessage(value=b"\x08\x01\x12\x01a")])]
    pairs = [_packed([NewMessage(value=b"\0\0\0\1k\0\0\0\3\x02\x02a")])]
    texts = [_packed([NewMessage(value=b'{"a": 1, "b": "a"}')] * FEW)]
    long = [_packed([NewMessage(value=bytes(4096))])] * 200  # whose end is searched for transactions
    topics = {
        "plain": plain,
        "long": long,
        "records": records,
        "texts": texts,
        "fields": fields,
        "pairs": pairs,
    }
    _offload(folder, topics)
    with open_tier(folder) as tier:
        for columns in (None, _ALL):
            scan(tier, "warm/up/plain", columns=columns).to_table()
            _ = scan(tier, "warm/up/plain", columns=columns).tasks
        scan(tier, "warm/up/plain", level="entries").to_table()
        _ = scan(tier, "warm/up/long").tasks
        scan(tier, "warm/up/records", schemas=json.dumps(_RECORD)).to_table()
        scan(tier, "warm/up/texts", schemas=f"literal:type=JSON,definition={json.dumps(_RECORD)}").to_table()
        scan(tier, "warm/up/pairs", schemas=_pair_definition()).to_table()
        scan(tier, "warm/up/fields", schemas=_protobuf_definition()).to_table()


def _packed(messages: Sequence[NewMessage], compression: Compression = Compression.NONE) -> bytes:
    return pack_entry(
        messages, producer_name="warm", sequence_id=0, publish_time_ms=_NOW_MS, compression=compression
    )


def _offload(folder: Path, topics: Mapping[str, Sequence[bytes]]) -> None:
    with open_store(folder) as store:
        offloader, hot = LedgerOffloader(store), FileLedgerStore(folder / "hot", sync="never")
        try:
            for topic, entries in topics.items():
                writer = hot.create({})
                writer.append_batch(entries)
                writer.close()
                reader = hot.open(writer.ledger_id)
                offloader.offload(reader, uuid4(), {"managedledgername": f"warm/up/persistent/{topic}"})
                reader.close()
        finally:
            hot.close()


def _pair_definition() -> str:
    types = {"key.schema.type": "STRING", "value.schema.type": "AVRO", "kv.encoding.type": "INLINE"}
    definition = json.dumps({"key": "", "value": _RECORD})
    return json.dumps({"version": 0, "type": "KEY_VALUE", "data": definition, "properties": types})


def _protobuf_definition() -> str:
    file = FileDescriptorProto(name="warm.proto", syntax="proto3")
    message = file.message_type.add(name="R")
    message.field.add(name="a", number=1, type=FieldDescriptorProto.TYPE_INT64, label="LABEL_OPTIONAL")
    message.field.add(name="b", number=2, type=FieldDescriptorProto.TYPE_STRING, label="LABEL_OPTIONAL")
    files = FileDescriptorSet(file=[file]).SerializeToString()
    return json.dumps(
        {
            "fileDescriptorSet": base64.b64encode(files).decode(),
            "rootMessageTypeName": "R",
            "rootFileDescriptorName": "warm.proto",
        }
    )
