"""Bytes to be stored: as random as they come, the same in every run, made fast."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import zip_longest


def content(length: int, seed: int = 0) -> bytes:
    """`length` bytes; no two places of them look alike, nor do those of two seeds."""
    return random.Random(seed).randbytes(length)  # noqa: S311


def blocks_of(lengths: Sequence[int], seed: int = 0) -> list[bytes]:
    """Blocks of these lengths; together they are the content of their sum."""
    whole = content(sum(lengths), seed)
    ends = [sum(lengths[: i + 1]) for i in range(len(lengths))]
    return [whole[end - length : end] for end, length in zip(ends, lengths, strict=True)]


def differing(found: Sequence[bytes], expected: Sequence[bytes]) -> list[int]:
    """The first difference of two lists. On a CI machine pytest would take minutes to show them in full."""
    pairs = zip_longest(found, expected)
    return [place for place, (one, other) in enumerate(pairs) if one != other]
