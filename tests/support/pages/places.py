"""The placeholders of the pages for a user's own places, and their values when the pages run: the whole table.

A block runs as it is shown, but for these texts. Longer ones count first.
"""

import re
from collections.abc import Callable

from pages.world import World

Place = Callable[[World], str]

_TIER = lambda world: str(world.tier_path)  # noqa: E731
_NOTHING = lambda _: ""  # noqa: E731

PLACES = {
    "s3://bucket/prefix": _TIER,
    "s3://bucket": _TIER,
    "s3://bucket/prefix KEY": lambda world: f"{world.tier_path} {world.key}",
    "5f0e…-ledger-42": lambda world: world.key,
    " --block 3": lambda _: " --block 1",
    "s3://bucket/untidy": lambda world: str(world.untidy),
    "s3://bucket/prefix acme/cold/returns": lambda world: f"{world.deleted_topic} acme/cold/returns",
    "s3://bucket/damaged": lambda world: str(world.damaged),
    "s3://old": _TIER,
    "gs://new": lambda world: f"{world.folder}/elsewhere",
    "s3://new": lambda world: f"{world.folder}/new",
    "s3://copy": lambda world: f"{world.folder}/copy",
    "s3://lake": lambda world: f"{world.folder}/lake",
    "file:///data/offloaded": lambda world: f"file://{world.tier_path}",
    "file:///cold": lambda world: f"file://{world.tier_path}",
    "file:///mnt/pulsar": lambda world: f"file://{world.folder}/mnt",
    "/data/tier": _TIER,
    ".demo/tier": lambda world: str(world.golden),
    "/backup/": lambda world: f"{world.folder}/backup/",
    "sqlite:/var/lib/offload.db": lambda world: f"sqlite:{world.folder}/kept/records.db",
    "/var/lib/offload": lambda world: f"{world.folder}/var",
    "/var/log/offload": lambda world: f"{world.folder}/var",
    "/var/cache/offload": lambda world: f"{world.folder}/cache",
    "/etc/offload.toml": lambda world: str(world.config),
    "/data/": lambda world: f"{world.folder}/data/",
    "/run/secrets/": lambda world: f"{world.folder}/secrets/",
    "/keys": lambda world: f"{world.folder}/keys",
    # A folder has no region.
    ', region="eu-west-1"': _NOTHING,
    '.option("storage.region", "eu-west-1")': _NOTHING,
    " --to-option region=eu-west-1": _NOTHING,
    # On real servers.
    "s3://bucket/prefix -o endpoint_url=http://localhost:9000 -o region=us-east-1": lambda world: world.store(
        "s3"
    ),
    "gs://bucket/prefix": lambda world: world.store("gcs"),
    "abfs://container@account.dfs.core.windows.net/prefix": lambda world: world.store("azure"),
    'az://container -o connection_string="$CONNECTION"': lambda world: world.store("azure"),
    "hdfs://namenode:8020/pulsar/tier": lambda world: world.store("hdfs"),
    "hdfs://namenode:8020/pulsar": lambda world: world.store("hdfs"),
    "http://127.0.0.1:8080": lambda world: world.service,
    "http://broker:8080": lambda world: world.service,
    "https://broker:8443": lambda world: world.service,
    "zk://zk-1:2181,zk-2:2181/pulsar": lambda world: world.zookeeper,
    "zk://host:2181": lambda world: world.zookeeper,
    "zk://zk-1:2181": lambda world: world.zookeeper,
    "zk:zookeeper:2181": lambda world: world.zookeeper,
    "spark://master:7077": lambda _: "local[2]",
    # Packages that a page has its readers write.
    "from offload_shelf": lambda world: "from offload_shelf" if world.shelf_site else "",
    "/data/objects.zip": lambda world: str(world.archive),
}


def placed(text, world):
    """A block's text with the places of this world."""
    longest_first = sorted(PLACES, key=len, reverse=True)
    pattern = "|".join(map(re.escape, longest_first))
    return re.sub(pattern, lambda match: PLACES[match[0]](world), text)
