"""All that a life of a topic creates, under a umask that takes nothing away: files and folders for this user alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import configuration_file

LIFE = """
import itertools, os, subprocess, sys
from contextlib import ExitStack
from pathlib import Path

os.umask(0)

from commands import COMMAND
from service import Service
from scenes.transactions import message

from offload_core.interfaces.cli.main import main
from offload_core.writing.configuration import load_configuration
from offload_core.writing.managed_ledger import RolloverPolicy, open_environment, open_managed_ledger
from offload_core.writing.policy_store import open_policies
from offload_core.storage.tier import open_store

folder, config = Path(sys.argv[1]), Path(sys.argv[2])
records = f"sqlite:{folder}/records.db"
TOPIC = "persistent://acme/n/orders"


def offload(*arguments, code=0):
    sys.argv = ["offload", *map(str, arguments)]
    try:
        main()
        ended = 0
    except SystemExit as exit_:
        ended = exit_.code or 0
    assert ended == code, (arguments, ended)


with ExitStack() as stack:
    configuration = load_configuration(config)
    store, policies = stack.enter_context(open_policies(configuration))
    environment = stack.enter_context(open_environment(configuration, store, policies))
    rollover = RolloverPolicy(max_entries=2, min_age_s=0)
    for name in ("orders", "returns"):
        topic = stack.enter_context(
            open_managed_ledger(environment, f"acme/n/persistent/{name}", rollover=rollover)
        )
        for _ in range(5):
            topic.add_entry(message())
        topic.offload_prefix(topic.last_position)
        topic.delete_hot_copies(lag_s=0)
    assert {"records.db-wal", "records.db-shm"} <= {path.name for path in folder.iterdir()}
    subprocess.run([sys.executable, sys.argv[3], folder], check=True)

cold, audit = folder / "cold", folder / "audit.jsonl"
offload("cat", cold, "-t", TOPIC, "-f", "jsonl", "--output", folder / "rows.jsonl")
with open_store(cold, layers=[f"block-cache:directory={folder}/cache/blocks"]) as cached:
    key = next(cached.list_objects("")).key
    os.utime(cold / key, (1, 1))  # what has just changed is not kept
    cached.stat(key)
    cached.read_range(key, 0, 10)
offload("cat", cold, "-t", TOPIC, "-f", "parquet", "--output", folder / "rows.parquet")
offload("export", cold, "-t", TOPIC, "--to", folder / "lake" / "orders")
offload("verify", cold, "--deep", "--state", folder / "state.db", "--records", records)
offload("verify", cold, "--deep", "--seal", "--yes", "--audit-log", audit)
offload("report", cold, "--output", folder / "report.html")
offload("relocate", cold, "--to", folder / "other", "--records", records, "--mapping", folder / "mapping",
        "--topic", TOPIC, "--yes", "--audit-log", folder / "moved.jsonl", "--grace", "0s", code=0)
offload("delete", cold, "acme/n/returns", "--managed-ledger", "--records", records, "--config", config,
        "--receipt", folder / "receipt.json", "--grace", "0s", "--accept-short-grace", "--not-shared",
        "--yes", "--audit-log", audit)
served = folder / "served"
served.mkdir(mode=0o700)
os.close(os.open(served / "service.log", os.O_CREAT, 0o600))
with Service(served) as service:
    pass
"""

LOOK = """
import sys
from pathlib import Path

for path in Path(sys.argv[1]).rglob("*"):
    if path.name != "offload.toml" and path.lstat().st_mode & 0o077:
        sys.exit(f"{path} has the mode {path.lstat().st_mode:o}")
"""


@pytest.mark.long
def test_all_that_a_life_of_a_topic_creates_is_for_its_owner_alone(tmp_path):
    folder = tmp_path / "life"
    folder.mkdir()
    config = configuration_file(folder)
    for name, text in (("life.py", LIFE), ("look.py", LOOK)):
        (tmp_path / name).write_text(text)
    path = os.pathsep.join([str(Path(__file__).parents[1] / "support"), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, tmp_path / "life.py", folder, config, tmp_path / "look.py"],
        env=os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = [path for path in folder.rglob("*") if path.name != "offload.toml"]
    assert len(found) > 30
    names = {path.name for path in found}
    assert {"records.db", "audit.jsonl", "state.db", "report.html", "rows.jsonl", "rows.parquet"} <= names
    assert {"mapping", "receipt.json", "room", "metadata.db", "next-ledger-id", "lock"} <= names
    modes = {path: path.lstat().st_mode for path in found}
    assert {path: f"{mode:o}" for path, mode in modes.items() if mode & 0o077} == {}
