"""Message ids (Pulsar's `MessageIdData` bytes, the column `__messageId`) as positions, and back.

A position is what a scan starts and ends at. Source: docs/formats/entry.md.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from offload_core.scan.positions import Position
from offload_hooks.errors import OptionError
from offload_proto.messages_pb2 import MessageIdData


def position_of_message_id(message_id: bytes) -> Position:
    """The place of a message, given its id as `__messageId` has it, or as a client's `serialize` makes it.

    Raises:
        OptionError: these bytes are no message id.
    """
    parsed = MessageIdData()
    try:
        parsed.ParseFromString(message_id)
    except DecodeError as error:
        raise OptionError(
            "this is not a message id", expected="bytes of MessageIdData", found=message_id.hex()
        ) from error
    if not parsed.IsInitialized() or max(parsed.ledgerId, parsed.entryId) >= 1 << 63:
        raise OptionError(
            "this is not a message id", expected="bytes of MessageIdData", found=message_id.hex()
        )
    return Position(parsed.ledgerId, parsed.entryId, max(parsed.batch_index, 0))


def message_id_of_position(position: Position, *, partition: int = -1) -> bytes:
    """The id of the message at a position, as Pulsar's clients take it; `partition` −1 for a topic that has none.

    It names the batch index only if that is not 0, and never the batch's size: for seeking, not for comparing with
    `__messageId`.
    """
    made = MessageIdData(ledgerId=position.ledger_id, entryId=position.entry_id)
    if partition >= 0:
        made.partition = partition
    if position.batch_index:
        made.batch_index = position.batch_index
    return made.SerializeToString()
