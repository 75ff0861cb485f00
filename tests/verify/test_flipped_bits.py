"""One flipped bit anywhere in a data object is found, wherever it lies: headers, frames, payloads, padding."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from damage import Scene
from damage.scenes import LEDGER, mapfiles, pip17, streaming
from effort import Sample
from entries import entry, pip17_object

from offload_core.format.codec.mapfile.sequence_file import FileCompression

SOUND: dict[str, Callable[[], Scene]] = {
    "pip17": partial(pip17, records=False),
    "streaming": partial(streaming, records=False),
    "mapfile-record": partial(mapfiles, records=False),
    "mapfile-block": partial(mapfiles, FileCompression.BLOCK, records=False),
}


def undetected(make: Callable[[], Scene], offsets: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The bytes and bits whose flip is not found."""
    missed = []
    for offset, bit in offsets:
        scene = make()
        scene.flip(scene.key(), offset, bit)
        if not scene.findings(deep=True):
            missed.append((offset, bit))
    return missed


@pytest.mark.parametrize("name", SOUND)
def test_any_flipped_bit_is_found(name: str, sample: Sample[tuple[int, int]]) -> None:
    scene = SOUND[name]()
    length = len(scene.objects[scene.key()].data)
    offsets = [(offset, (offset + add) % 8) for offset in range(length) for add in (0, 5)]
    assert undetected(SOUND[name], sample(offsets, 51)) == []


def one_entry() -> Scene:
    """An object whose only entry tells nothing but what it is itself."""
    scene = Scene()
    scene.add(pip17_object([entry(b"a payload" * 20)], ledger_id=LEDGER), 0)
    return scene


def test_every_flipped_bit_behind_the_magic_of_a_single_entry_is_found() -> None:
    length = len(one_entry().objects[one_entry().key()].data)
    magic = range(
        128 + 12, 128 + 14
    )  # without it and with bytes that are no entry, it may be no entry of Pulsar's
    offsets = [(offset, offset % 8) for offset in range(length) if offset not in magic]
    assert undetected(one_entry, offsets) == []
