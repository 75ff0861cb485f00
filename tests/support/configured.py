"""A configuration with all its places in one folder, as an operator would write it."""

from __future__ import annotations

from pathlib import Path


def configuration_file(folder: Path) -> Path:
    """Records, hot tier, audit log, and a local tier as the broker's."""
    file = folder / "offload.toml"
    file.write_text(f"""
[metadata]
url = "sqlite:{folder}/records.db"
options.create = true
[hot_tier.options]
path = "{folder}/hot"
[audit_log]
path = "{folder}/audit.jsonl"
[policies]
driver = "local"
extra_configurations.root = "{folder}/cold"
""")
    return file
