"""Amounts as people type and read them."""

from __future__ import annotations

import pytest

from offload_core.interfaces.cli.terminal import id_ranges


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        ([], ""),
        ([7], "7"),
        ([1, 2], "1–2"),
        ([1, 3], "1, 3"),
        ([0, 1, 2, 5, 7, 8, 1 << 40], "0–2, 5, 7–8, 1099511627776"),
    ],
)
def test_ids_that_follow_one_another_are_told_by_first_and_last(ids: list[int], text: str) -> None:
    assert id_ranges(ids) == text
