"""Scenes of entries that are not Pulsar's, or have no checksum."""

from __future__ import annotations

from entries import LZ4, entry, pip17_object

from damage.scenes import LEDGER, Scene


def plain_entries() -> Scene:
    """Entries that are not Pulsar's, and empty ones."""
    scene = Scene()
    scene.add(pip17_object([b"", b"plain", b"x" * 700, b""], ledger_id=LEDGER, max_block_bytes=1000), 0)
    return scene


def without_checksums() -> Scene:
    """Pulsar's entries without a checksum; one encrypted, as far as a verifier can see, and a marker."""
    scene = Scene()
    payloads = [entry(b"one", checksum=False), entry(b"two" * 100, checksum=False, compression=LZ4)]
    scene.add(pip17_object(payloads, ledger_id=LEDGER), 0)
    return scene
