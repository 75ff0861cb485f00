"""Tables of engines against those of scans: the same columns, and the same rows in the same order."""

from __future__ import annotations

import pyarrow as pa


def assert_same_rows(found: pa.Table, expected: pa.Table) -> None:
    """Engines have types of their own for texts and bytes: those of the scan hold all of their values."""
    assert found.schema.names == expected.schema.names
    as_expected = found.cast(expected.schema)
    assert as_expected.equals(expected) or as_expected.to_pylist() == expected.to_pylist()
