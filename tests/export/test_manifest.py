"""The manifest's bytes: written and read back, and everything else refused."""

import contextlib
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload_core.metadata.catalogue import TopicName
from offload_core.reading.export.export_files import ExportedFile, StagedUpload
from offload_core.reading.export.manifest import Manifest, decode_manifest, encode_manifest, number_of_key
from offload_core.reading.scan import Position
from offload_hooks import BlockReceipt, Upload
from offload_hooks.errors import MetadataError, OffloadError, UnsupportedVersionError

GOLDEN = Path(__file__).parents[1] / "docs" / "export-manifest-v1.json"
TOPIC = "persistent://acme/cold/orders"
KEY = f"topic=persistent%3A%2F%2Facme%2Fcold%2Forders/date=2023-12-09/{3:019d}-{0:019d}-{0:09d}.parquet"
MANIFEST = Manifest(
    number=1,
    committed_at=datetime(2026, 11, 22, 0, 30, tzinfo=UTC),
    positions={TopicName(TOPIC): Position(4, 0)},
    files=(
        ExportedFile(
            key=KEY,
            topic=TOPIC,
            date="2023-12-09",
            rows=16,
            size_bytes=4564,
            first=Position(3, 0),
            last=Position(3, 11, 1),
            staged=StagedUpload(
                upload=Upload(key=KEY, upload_id="8c1f"),
                receipts=(BlockReceipt(part_number=1, offset=0, length=4564, tag="a"),),
            ),
        ),
    ),
)


def test_the_golden_manifest_is_read_and_written():
    assert decode_manifest(GOLDEN.read_bytes(), MANIFEST.key) == MANIFEST
    assert encode_manifest(MANIFEST) == GOLDEN.read_bytes()


def test_a_file_that_is_visible_has_no_upload_any_more():
    published = replace(MANIFEST, files=(replace(MANIFEST.files[0], staged=None, date=None),))
    assert decode_manifest(encode_manifest(published), published.key) == published


def test_keys_have_numbers():
    assert number_of_key(MANIFEST.key) == 1
    assert number_of_key("_offload_export/1.json") is None
    assert number_of_key(f"x/{MANIFEST.key}") is None


def changed(**fields):
    return json.dumps(json.loads(GOLDEN.read_bytes()) | fields).encode()


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (changed(version=2), UnsupportedVersionError),
        (changed(version=0), MetadataError),
        (changed(version=True), MetadataError),
        (changed(number=2), MetadataError),
        (changed(positions={TOPIC: "4"}), MetadataError),
        (changed(positions=[]), MetadataError),
        (changed(files=[{}]), MetadataError),
        (changed(files=None), MetadataError),
        (changed(committed_at="yesterday"), MetadataError),
        (b"[" * 100_000, MetadataError),
        (b"\xff", MetadataError),
        (b"", MetadataError),
    ],
)
def test_what_is_no_manifest_is_refused(data, error):
    with pytest.raises(error) as caught:
        decode_manifest(data, MANIFEST.key)
    assert isinstance(caught.value, OffloadError)
    assert caught.value.key == MANIFEST.key


def test_a_manifest_truncated_anywhere_is_refused():
    whole = GOLDEN.read_bytes()
    for length in range(len(whole)):
        with pytest.raises(MetadataError):
            decode_manifest(whole[:length], MANIFEST.key)


@settings(deadline=None)
@given(st.integers(0, 100_000), st.integers(0, 255))
def test_a_manifest_with_any_byte_changed_is_a_manifest_or_refused(place, byte):
    data = bytearray(GOLDEN.read_bytes())
    data[place % len(data)] = byte
    with contextlib.suppress(MetadataError, UnsupportedVersionError):
        decode_manifest(bytes(data), MANIFEST.key)
