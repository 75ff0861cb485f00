"""The byte listings of docs/formats are those of golden files, and the pages name the constants of the code.

A listing is a fenced block ```` ```bytes title="<file in the source tree>" ````. Its lines are
`offset  hex bytes  | meaning`, the offset in the file (after decompression of a `.gz`) in 8 hex digits. Lines
follow one another without a gap unless a line `…` stands between them.
"""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import pytest

from offload_core.format.codec.block_checksums import pack_block_checksums, parse_block_checksums
from offload_core.format.codec.block_layout import BLOCK_MAGIC, PADDING
from offload_core.format.codec.crc32c import crc32c
from offload_core.format.codec.object_format import INDEX_MAGIC, ObjectFormat
from offload_core.format.messages.entry import BROKER_METADATA_MAGIC, CHECKSUM_MAGIC
from offload_drivers import sidecar
from offload_proto.managed_ledger_pb2 import ManagedLedgerInfo

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "formats").glob("*.md"))

_LISTING = re.compile(r'^```bytes title="([^"\n]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_LINE = re.compile(r"([0-9a-f]{8})  ((?:[0-9a-f]{2} ){0,15}[0-9a-f]{2}) *  \|(?: (.*))?")
_MAGICS = {
    "pip17.md": {BLOCK_MAGIC[ObjectFormat.PIP17], INDEX_MAGIC[ObjectFormat.PIP17]},
    "streaming.md": {BLOCK_MAGIC[ObjectFormat.STREAMING], INDEX_MAGIC[ObjectFormat.STREAMING]},
}
_DIRECTORY_OF_A_FORK = 0xE1D3E1D3


class Run(NamedTuple):
    """Bytes that stand one after another in a listing."""

    offset: int
    data: bytes


def listings(text):
    """The file and the lines of each listing of a page."""
    return [(match[1], match[2]) for match in _LISTING.finditer(text)]


def runs(lines):
    """The bytes of a listing; `ValueError` for a line that is none."""
    found = []
    follows = False
    for line in lines.splitlines():
        if line == "…":
            if not follows:
                raise ValueError("a gap follows no bytes")
            follows = False
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"not a line of a listing: {line!r}")
        offset, data = int(match[1], 16), bytes.fromhex(match[2])
        if not follows:
            if found and offset <= found[-1].offset + len(found[-1].data):
                raise ValueError(f"no gap before {line!r}")
            found.append(Run(offset, data))
        elif offset != found[-1].offset + len(found[-1].data):
            raise ValueError(f"a gap that is not marked before {line!r}")
        else:
            found[-1] = Run(found[-1].offset, found[-1].data + data)
        follows = True
    return found


def read(name):
    data = (ROOT / name).read_bytes()
    return gzip.decompress(data) if name.endswith(".gz") else data


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_listings_are_the_bytes_of_golden_files(page):
    text = page.read_text()
    found = listings(text)
    assert found, f"{page.name} shows no bytes"
    assert text.count("```bytes") == len(found), "a listing is not of the form that is checked"
    for name, lines in found:
        data = read(name)
        assert runs(lines), name
        for run in runs(lines):
            shown = data[run.offset : run.offset + len(run.data)]
            assert shown.hex(" ") == run.data.hex(" "), f"{page.name}: {name} at {run.offset:08x}"


@pytest.mark.parametrize(
    "lines",
    [
        "00000000  de 47  | one\n00000003  de  | a gap",
        "00000000  de 47  | one\n…\n00000001  47  | back",
        "00000000  de4  | half",
        "…\n00000000  de  | late",
        "0000  de  | a short offset",
        "00000000  de",
    ],
)
def test_a_listing_that_is_not_right_is_refused(lines):
    with pytest.raises(ValueError, match=r"gap|listing"):
        runs(lines)


@pytest.mark.parametrize("name", sorted(_MAGICS))
def test_the_magics_and_the_padding_of_a_format_stand_on_its_page(name):
    text = (ROOT / "docs" / "formats" / name).read_text()
    written = {int(magic, 16) for magic in re.findall(r"`0x([0-9A-F]{8})`", text)}
    assert written - {_DIRECTORY_OF_A_FORK} == _MAGICS[name]
    assert f"`{PADDING.hex(' ').upper()}`" in text


def test_the_magics_of_an_entry_stand_on_its_page():
    text = (ROOT / "docs" / "formats" / "entry.md").read_text()
    written = {int(magic, 16) for magic in re.findall(r"`0x([0-9a-f]{4})`", text)}
    assert written == {BROKER_METADATA_MAGIC, CHECKSUM_MAGIC}


def test_the_uuid_of_the_example_is_that_of_its_halves():
    record = ManagedLedgerInfo.FromString(read("tests/golden/metadata/none.ml.bin"))
    context = record.ledgerInfo[0].offloadContext
    uuid = UUID(
        bytes=b"".join(half.to_bytes(8, "big", signed=True) for half in (context.uidMsb, context.uidLsb))
    )
    assert f"`{uuid}`" in (ROOT / "docs" / "formats" / "metadata.md").read_text()


def test_the_example_of_block_checksums_is_of_the_objects_that_the_page_names():
    data = read("tests/docs/block-checksums-v1.bin")
    checksums = parse_block_checksums(data)
    golden = "tests/golden/offloader/pip17/exact-fill"
    index, rest = read(f"{golden}/index.bin.gz"), read(f"{golden}/data.bin.gz")
    assert (checksums.index_length, checksums.index_crc) == (len(index), crc32c(index))
    for length, crc in zip(checksums.lengths.tolist(), checksums.crcs.tolist(), strict=True):
        block, rest = rest[:length], rest[length:]
        assert crc32c(block) == crc
    assert not rest
    assert pack_block_checksums(checksums) == data


def test_the_example_of_a_sidecar_is_what_is_written_and_read():
    data = read("tests/docs/sidecar-v1.json")
    expected = sidecar.ObjectMetadata(
        content_type="application/unknown",
        user_metadata={"role": "data", "s3managedledgeroffloaderformatversion": "1"},
    )
    assert sidecar.decode_sidecar(data, "a") == expected
    assert sidecar.encode_sidecar(expected) == data
    assert sidecar.VERSION == 1
