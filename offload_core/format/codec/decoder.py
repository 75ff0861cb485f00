"""From an index object's bytes to its value, whichever of the formats with blocks it has.

A MapFile's index is decoded together with the beginning of its data file: `mapfile.index_file`.
"""

from __future__ import annotations

from offload_core.format.codec.index import ObjectIndex
from offload_core.format.codec.object_format import ObjectFormat, ObjectKey, resolve_format
from offload_core.format.codec.pip17 import parse_pip17_index
from offload_core.format.codec.streaming import parse_streaming_index
from offload_hooks.errors import OptionError, placed


def parse_index(
    data: bytes | memoryview, key: ObjectKey, *, recorded: ObjectFormat | None = None
) -> ObjectIndex:
    """Decode the index object under `key`; `recorded` is its format by an offload context, where there is one.

    Raises:
        FormatError: a subclass, with the index's key and the byte.
        OptionError: the index is a MapFile's.
    """
    resolved = resolve_format(data, key, recorded=recorded)
    if resolved is ObjectFormat.MAPFILE:
        raise OptionError(
            "a MapFile's index is decoded with the beginning of its data file", key=key.index_key
        )
    with placed(key=key.index_key, ledger_id=key.ledger_id):
        if resolved is ObjectFormat.STREAMING or key.ledger_id is None:
            return parse_streaming_index(data)
        return parse_pip17_index(data, key.ledger_id)
