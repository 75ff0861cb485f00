"""`offload warm`: after it, reading compiles nothing."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from commands import as_a_process
from golden import BROKER, TOPICS
from tiers import lay_out_broker_objects

READ = """
import sys
from offload_core.interfaces.cli.warm import _ALL
from pulsar_offload import open_tier, scan
tier, topics = open_tier(sys.argv[1]), sys.argv[2:]
for topic in topics:
    name, *schemas = topic.split("=")
    for columns in (None, _ALL):
        scan(tier, name, columns=columns).to_table()
    scan(tier, name).tasks
    for path in schemas:
        scan(tier, name, schemas=path).to_table()
"""


@pytest.mark.nightly
def test_after_it_reading_what_a_broker_offloaded_compiles_nothing(tmp_path):
    topics = sorted(set(TOPICS) - {"chunk"})
    lay_out_broker_objects(tmp_path / "tier", topics)
    environment = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    done = as_a_process("warm", env=os.environ | environment)
    assert done.code == 0, done.err
    assert done.out.startswith("compiled in ")
    (folder,) = (tmp_path / "cache").iterdir()
    compiled = set(folder.iterdir())
    assert len(compiled) > 40
    named = [f"acme/cold/{name}" for name in topics]
    typed = {"avro", "json", "jstring", "jkv-inline"}
    read = [
        f"{name}={BROKER / 'topics' / topic / 'schemas.json'}" if topic in typed else name
        for topic, name in zip(topics, named, strict=True)
    ]
    subprocess.run(
        [sys.executable, "-c", READ, str(tmp_path / "tier"), *read], env=os.environ | environment, check=True
    )
    assert {path.name for path in folder.iterdir()} == {path.name for path in compiled}


def test_what_is_kept_elsewhere_is_not_shared(offload, monkeypatch):
    monkeypatch.setattr("offload_core.interfaces.cli.warm._read_all", lambda _: None)
    monkeypatch.setattr("offload_core.interfaces.cli.warm.share_compiled", lambda: None)
    done = offload("warm", "--shared")
    assert done.code == 1
    assert "kept for this user alone" in done.err
