"""A block of a page run in a world: Python in the page's own names, commands by the real command line, data parsed.

What a page shows below a command is compared with what the command prints: each line must be there, where digits stand
for any number and blanks for any blanks. A line `…` stands for any lines.
"""

import ast
import builtins
import json
import os
import re
import subprocess
import sys
import tomllib
from xml.etree import ElementTree

from airflow_home import AirflowHome

from pages.places import placed
from pages.shell import run_console

GIVEN = frozenset(("spark", "tier", "older_tier", "environment", "hot_store", "record"))
"""The names that a page's Python may use without having made them."""

IN_ITS_OWN_PROCESS = '.option("driver", "shelf")'
"""Spark's workers have the package of such a block only if their driver was started with it."""

IN_AIRFLOW = "from airflow.sdk import DAG"
"""A block that begins with this is a file of DAGs; all of them are run."""


def run(block, world, names):
    """Run a block; `names` are those that the page's Python has made so far."""
    code = placed(block.code, world)
    match block.language:
        case "python" if IN_ITS_OWN_PROCESS in code:
            _run_process(code, world)
        case "python" if IN_AIRFLOW in code:
            AirflowHome(world.folder / "airflow").run(code)
        case "python":
            _run_python(code, block, world, names)
        case "console":
            run_console(code, world)
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
    filename = f"{block.page}:{block.line}"
    names.setdefault("__name__", re.sub(r"\W", "_", block.page))
    exec(compile(tree, filename, "exec"), names)


def _run_process(code, world):
    env = os.environ | {"PYTHONPATH": str(world.shelf_site), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _names_used(tree):
    made = {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    used = {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    return used - made - set(dir(builtins))


def _run_sql(code):
    import duckdb

    assert duckdb.sql(code).fetchall(), "the query gives no rows"
