"""A block of a page run in a world: Python in the page's own names, commands by the real command line, data parsed.

What a page shows below a command is compared with what the command prints: each line must be there, where digits stand
for any number and blanks for any blanks. A line `…` stands for any lines. In tutorials commands run on a terminal of 80
columns, as their readers' do.
"""

import ast
import builtins
import doctest
import json
import os
import re
import subprocess
import sys
from xml.etree import ElementTree

import tomllib
from airflow_home import AirflowHome
from servers import install

from pages.shell import run_console

GIVEN = frozenset(("spark", "tier", "older_tier", "environment", "hot_store", "record"))
"""The names that a page's Python may use without having made them."""

TUTORIALS = "docs/tutorials/"

IN_ITS_OWN_PROCESS = {
    '.option("driver", "shelf")': lambda world: (
        world.shelf_site
    ),  # which workers have only if their driver had it
    "SparkSession.builder.remote(": lambda _: "",  # beside the session of this process
    "import OffloadedDatasource, read_ray": lambda _: "",  # which starts a cluster
    "import read_daft": lambda _: install.daft(),  # an older PyArrow as well
}
"""What a block has that needs a process, and the folder of packages that this needs."""

IN_AIRFLOW = "from airflow.sdk import DAG"
"""A block that begins with this is a file of DAGs; all of them are run."""


# --- The placeholders of the pages for a user's own places, and their values when the pages run: the whole table.
#
# A block runs as it is shown, but for these texts. Longer ones count first.


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
    "fsspec+sftp://host/path": lambda world: (
        f"fsspec+file://{world.tier_path}"
    ),  # which takes any storage_options
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
    "s3://live -t acme/live/orders": lambda world: world.live.command_line + f" -t {world.live.topic}",
    "relocate s3://live --to s3://warm": lambda world: (
        f"relocate {world.live.command_line} {world.live.other('--to')}"
    ),
    "gc s3://live --records zk://pulsar-zk:2181 --moved-to s3://warm": lambda world: (
        f"gc {world.live.command_line} --records {world.live.zookeeper} {world.live.other('--moved-to')}"
    ),
    "s3://live --ledgers": lambda world: world.live.command_line + " --ledgers",
    'open_tier("s3://live", ': lambda world: f'open_tier("{world.live.url}", **{world.live.options!r}, ',
    'load("s3://live")': lambda world: f"options(**{world.live.spark_options!r}).load()",
    "acme/live/orders": lambda world: world.live.topic,
    "persistent://acme/live/orders": lambda world: world.live.topic,
    "/etc/offload/live.toml": lambda world: str(world.live_settings),
    "zk://pulsar-zk:2181": lambda world: world.live.zookeeper,
    "http://pulsar-broker:8080": lambda world: world.live.broker,
    "store.open(123)": lambda world: f"store.open({world.live.ledger_id})",
    "zk://zk-1:2181,zk-2:2181/pulsar": lambda world: world.zookeeper,
    "zk://host:2181": lambda world: world.zookeeper,
    "zk://zk-1:2181": lambda world: world.zookeeper,
    "zk:zookeeper:2181": lambda world: world.zookeeper,
    "spark://master:7077": lambda _: "local[2]",
    "sc://spark.example:15002": lambda world: world.spark_connect,
    "./environment/bin/python": lambda _: sys.executable,
    # Packages that a page has its readers write.
    "from offload_shelf": lambda world: "from offload_shelf" if world.shelf_site else "",
    "/data/objects.zip": lambda world: str(world.archive),
}


def placed(text, world):
    """A block's text with the places of this world."""
    longest_first = sorted(PLACES, key=len, reverse=True)
    pattern = "|".join(map(re.escape, longest_first))
    return re.sub(pattern, lambda match: PLACES[match[0]](world), text)


# --- blocks ----------------------------------------------------------------------------------------


def run(block, world, names):
    """Run a block; `names` are those that the page's Python has made so far."""
    code = placed(block.code, world)
    match block.language:
        case "python" if found := [site for text, site in IN_ITS_OWN_PROCESS.items() if text in code]:
            _run_process(code, found[0](world))
        case "python" if IN_AIRFLOW in code:
            AirflowHome(world.folder / "airflow").run(code)
        case "python":
            _run_python(code, block, world, names)
        case "pycon":
            _run_session(code, block, world, names)
        case "console":
            run_console(code, world, columns=80 if block.page.startswith(TUTORIALS) else None)
        case "json":
            json.loads(code)
        case "toml":
            tomllib.loads(code)
        case "xml":
            ElementTree.fromstring(code)
        case "sql":
            _run_sql(code)
        case other:
            raise AssertionError(f"{block}: nothing runs a block in the language {other!r}")


def _run_python(code, block, world, names):
    tree = ast.parse(code)
    if "SparkSession" in code:
        assert world.spark  # so that the block gets the session that there is
    for name in _names_used(tree) - names.keys():
        if name in GIVEN:
            names[name] = getattr(world, name)
    names.setdefault("__name__", re.sub(r"\W", "_", block.page))
    exec(compile(tree, str(block), "exec"), names)


def _run_session(code, block, world, names):
    """Type each line at a prompt, and compare what follows it; `...` stands for anything."""
    if "SparkSession" in code:
        assert world.spark
    typed = doctest.DocTestParser().get_doctest(code, names, str(block), block.page, block.line)
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    failures = []
    runner.run(typed, out=failures.append, clear_globs=False)
    names |= typed.globs
    assert not failures, "".join(failures)


def _run_process(code, site):
    env = os.environ | {
        "PYTHONPATH": str(site),
        "PYSPARK_PYTHON": sys.executable,
        "DAFT_ANALYTICS_ENABLED": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _names_used(tree):
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    made, used = ({each.id for each in names if isinstance(each.ctx, kind)} for kind in (ast.Store, ast.Load))
    return used - made - set(dir(builtins))


def _run_sql(code):
    import duckdb

    assert duckdb.sql(code).fetchall(), "the query gives no rows"
