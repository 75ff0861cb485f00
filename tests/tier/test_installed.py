"""What is installed is read once, and anew when a distribution comes or goes."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.metadata import DistributionFinder

from offload_core.storage.tier.registry import installed

GROUP = "pulsar_offload.drivers"


def names():
    return {entry.name for entry in installed(GROUP)}


def distribution(site, name, driver, changed_ns):
    """Install one into a directory, which then has this time of change."""
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{driver} = {name}:Driver\n")
    os.utime(site, ns=(changed_ns, changed_ns))
    return info


def test_it_is_read_once_however_often_it_is_asked(tmp_path, monkeypatch):
    reads = []

    class Noting(DistributionFinder):
        """Finds nothing, and notes that it was asked."""

        def find_distributions(self, context=None):
            reads.append(context)
            return ()

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Noting()])
    monkeypatch.syspath_prepend(tmp_path)
    assert "local" in names()
    once = len(reads)
    assert once > 0
    assert all("local" in names() for _ in range(3))
    assert len(reads) == once


def test_what_is_installed_or_removed_while_the_process_runs_is_seen(tmp_path, monkeypatch):
    distribution(tmp_path, "acme_first", "first", 1_000_000_000)
    monkeypatch.syspath_prepend(tmp_path)
    before = names()
    assert "first" in before
    info = distribution(tmp_path, "acme_second", "second", 2_000_000_000)
    assert names() == before | {"second"}
    shutil.rmtree(info)
    os.utime(tmp_path, ns=(3_000_000_000, 3_000_000_000))
    assert names() == before


def test_a_place_that_leaves_the_path_takes_its_distributions_along(tmp_path, monkeypatch):
    distribution(tmp_path, "acme_third", "third", 1_000_000_000)
    with monkeypatch.context() as patched:
        patched.syspath_prepend(tmp_path)
        patched.syspath_prepend(tmp_path / "nothing there")
        assert "third" in names()
    assert "third" not in names()
