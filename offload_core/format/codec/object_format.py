"""The format of an object: from its offload context where there is one, else from its key and magic.

PIP-17 and streaming objects carry the same version in their user metadata, which so cannot tell them apart. Keys:
`<uuid>-ledger-<id>` and `<uuid>-ledger-<id>-index` for PIP-17, `<uuid>` and `<uuid>-index` for streaming, `<managed
ledger>/<id>-<uuid>/data` and `/index` for MapFiles. A checksum file may lie beside the two. A key and a magic that
contradict each other are an error that names both. Source: docs/formats/index.md.
"""

from __future__ import annotations

import enum
import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from offload_hooks.errors import BadMagicError, OptionError, TruncatedError
from offload_hooks.json_text import WHOLE

if TYPE_CHECKING:
    from typing_extensions import Self

FORMAT_VERSION_KEY = "s3managedledgeroffloaderformatversion"
FORMAT_VERSION = "1"
TOPIC_KEY = "managedledgername"
CLUSTER_KEY = "pulsarclustername"
ROLE_KEY = "role"
SOFTWARE_VERSION_KEY = "s3managedledgeroffloadersoftwareversion"
"""In the user metadata of the objects; docs/formats/index.md."""

_CHECKSUMS_SUFFIX = "-checksums"
_CHECKSUMS_FILE = "_checksums"
"""In a MapFile's directory, where Hadoop hides names that begin so."""
_CRC_FILES = (".data.crc", ".index.crc")


class ObjectFormat(enum.Enum):
    """The layout of a pair of data and index object."""

    PIP17 = "pip17"
    STREAMING = "streaming"
    MAPFILE = "mapfile"


INDEX_MAGIC = {
    ObjectFormat.PIP17: 0xDE47DE47,
    ObjectFormat.STREAMING: 0x3D1FB0BC,
    ObjectFormat.MAPFILE: 0x53455106,
}

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_LEDGER = r"0|[1-9][0-9]{0,18}"
_KEY = re.compile(
    rf"(?P<folder>(?:.*/)?)(?P<uuid>{_UUID})(?:-ledger-(?P<ledger>{_LEDGER}))?(?P<index>-index)?"
)
_MAPFILE_KEY = re.compile(
    rf"(?P<folder>[^/]+(?:/[^/]+){{2,}}/)(?P<ledger>{_LEDGER})-(?P<uuid>{_UUID})/(?:data|(?P<index>index))"
)

_MAPFILE_NAMES = ("/data", "/index")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectKey:
    """A key taken apart. `folder` is the text before the uuid (Pulsar writes none), with its `/`.

    Of a MapFile, `folder` is the managed ledger's name and a `/`. `ledger_id` is None for streaming objects: their
    index lists the ledgers.
    """

    folder: str
    uuid: UUID
    ledger_id: int | None
    is_index: bool
    is_mapfile: bool = False

    @classmethod
    def of_ledger(cls, ledger_id: int, uuid: UUID) -> Self:
        """The key of a data object of blocks that has one ledger."""
        return cls(folder="", uuid=uuid, ledger_id=ledger_id, is_index=False)

    @classmethod
    def of_mapfile(cls, managed_ledger: str, ledger_id: int, uuid: UUID) -> Self:
        """The key of a ledger's MapFile: of its data file."""
        return cls(
            folder=f"{managed_ledger}/", uuid=uuid, ledger_id=ledger_id, is_index=False, is_mapfile=True
        )

    @property
    def object_format(self) -> ObjectFormat:
        """The format that the key's form stands for."""
        if self.is_mapfile:
            return ObjectFormat.MAPFILE
        return ObjectFormat.STREAMING if self.ledger_id is None else ObjectFormat.PIP17

    @property
    def managed_ledger(self) -> str | None:
        """The managed ledger's name, where the key has it: of a MapFile."""
        return self.folder.removesuffix("/") if self.is_mapfile else None

    @property
    def data_key(self) -> str:
        """The data object's key."""
        return f"{self._stem}/data" if self.is_mapfile else self._stem

    @property
    def index_key(self) -> str:
        """The index object's key."""
        return f"{self._stem}/index" if self.is_mapfile else f"{self._stem}-index"

    @property
    def checksum_keys(self) -> tuple[str, str] | None:
        """The keys of the `.crc` files of data and index, which a MapFile on a local root has beside it."""
        return (f"{self._stem}/.data.crc", f"{self._stem}/.index.crc") if self.is_mapfile else None

    @property
    def block_checksums_key(self) -> str:
        """The key of the checksums of both objects, which may lie beside them; it is a key of neither format."""
        return f"{self._stem}/{_CHECKSUMS_FILE}" if self.is_mapfile else f"{self._stem}{_CHECKSUMS_SUFFIX}"

    @property
    def companion_keys(self) -> tuple[str, ...]:
        """The keys of all that may lie beside the two objects, and goes when they go."""
        return (*(self.checksum_keys or ()), self.block_checksums_key)

    @property
    def _stem(self) -> str:
        if self.is_mapfile:
            return f"{self.folder}{self.ledger_id}-{self.uuid}"
        suffix = "" if self.ledger_id is None else f"-ledger-{self.ledger_id}"
        return f"{self.folder}{self.uuid}{suffix}"


def parse_key(key: str) -> ObjectKey | None:
    """Take a key apart; None if it is not one of an offloaded object."""
    is_mapfile = key.endswith(_MAPFILE_NAMES)
    match = (_MAPFILE_KEY if is_mapfile else _KEY).fullmatch(key)
    if match is None:
        return None
    ledger, uuid = match["ledger"], match["uuid"]
    ledger_id = None if ledger is None else int(ledger)
    if ledger_id is not None and ledger_id not in WHOLE:
        return None
    return ObjectKey(
        folder=match["folder"],
        uuid=UUID(int=int(uuid.replace("-", ""), 16)),
        ledger_id=ledger_id,
        is_index=match["index"] is not None,
        is_mapfile=is_mapfile,
    )


def parse_checksum_key(key: str) -> ObjectKey | None:
    """Take the key of a MapFile's `.crc` file apart; the key of the data object, None if it is not one."""
    stem, slash, name = key.rpartition("/")
    return parse_key(f"{stem}{slash}data") if name in _CRC_FILES else None


def parse_block_checksums_key(key: str) -> ObjectKey | None:
    """Take a key of block checksums apart; the key of the data object that they are of, None if it is not one."""
    if key.endswith(f"/{_CHECKSUMS_FILE}"):
        of = parse_key(key.removesuffix(_CHECKSUMS_FILE) + "data")
        return of if of is not None and of.is_mapfile else None
    of = parse_key(key.removesuffix(_CHECKSUMS_SUFFIX)) if key.endswith(_CHECKSUMS_SUFFIX) else None
    return of if of is not None and not of.is_mapfile and not of.is_index else None


def resolve_format(
    index: bytes | memoryview, key: ObjectKey, *, recorded: ObjectFormat | None = None
) -> ObjectFormat:
    """The format of the object whose index begins with the bytes `index` (at least 4) and lies under `key`.

    `recorded` is the format by the ledger's offload context (segments listed: streaming), where there is one.

    Raises:
        TruncatedError: fewer than 4 bytes.
        BadMagicError: no index of a known format, or one of another format than that of key or record.
    """
    if len(index) < 4:
        raise TruncatedError(
            "an index is cut off", key=key.index_key, offset=0, expected="4 bytes", found=len(index)
        )
    (magic,) = struct.unpack_from(">I", index)
    by_magic = next((known for known, value in INDEX_MAGIC.items() if value == magic), None)
    expected = recorded or key.object_format
    source = "its offload context" if recorded else f"the key's form ({expected.value})"
    if by_magic is None or by_magic is not expected:
        raise BadMagicError(
            "this is not the index that it should be by " + source,
            key=key.index_key,
            ledger_id=key.ledger_id,
            offset=0,
            expected=f"{INDEX_MAGIC[expected]:08X} ({expected.value})",
            found=f"{magic:08X}" + (f" ({by_magic.value})" if by_magic else ""),
        )
    if recorded is not None and recorded is not key.object_format:
        raise OptionError(
            "an offload context and an object's key name different formats",
            key=key.data_key,
            expected=f"{recorded.value} by the context",
            found=f"{key.object_format.value} by the key",
        )
    return by_magic
