"""Airflow in a folder, in processes of its own: files of DAGs are run whole, by `DAG.test`, in a real database."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_RUN = """
import importlib.util, json, sys
from datetime import UTC, datetime

spec = importlib.util.spec_from_file_location("dags_of_a_test", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
from airflow.sdk import DAG

midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
(dag,) = (each for each in vars(module).values() if isinstance(each, DAG))
run = dag.test(logical_date=midnight)
tasks = {each.task_id: [str(each.state), each.xcom_pull(each.task_id)] for each in run.get_task_instances()}
with open(sys.argv[2], "w") as file:
    json.dump({"state": str(run.state), "tasks": tasks}, file)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """The end of a DAG's run: its state, the state and result of each task, the log."""

    state: str
    states: dict[str, str]
    results: dict[str, Any]
    log: str


class AirflowHome:
    """An Airflow with no DAGs yet."""

    def __init__(self, folder: Path):
        self._dags = folder / "dags"
        self._dags.mkdir(parents=True)
        self._folder = folder
        self._env = {
            "AIRFLOW_HOME": str(folder),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self._dags),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
        }
        self.ask("db", "migrate")

    def ask(self, *arguments: str) -> str:
        """The output of a command of `airflow`."""
        return self._done([str(Path(sys.executable).with_name("airflow")), *arguments], {})

    def run(self, code: str, connections: dict[str, dict[str, Any]] | None = None) -> Ran:
        """Run a file with one DAG; the extras of `pulsar_offload` connections are given by their names."""
        file, result = self._dags / "dag.py", self._folder / "result.json"
        file.write_text(code)
        result.unlink(missing_ok=True)
        named = {
            f"AIRFLOW_CONN_{name.upper()}": json.dumps({"conn_type": "pulsar_offload", "extra": extra})
            for name, extra in (connections or {}).items()
        }
        log = self._done([sys.executable, "-c", _RUN, str(file), str(result)], named)
        tasks = json.loads(result.read_text())
        return Ran(
            state=tasks["state"],
            states={task: state for task, (state, _) in tasks["tasks"].items()},
            results={task: result for task, (_, result) in tasks["tasks"].items()},
            log=log,
        )

    def _done(self, command: list[str], more: dict[str, str]) -> str:
        log = self._folder / "command.log"
        options = {"env": os.environ | self._env | more, "stderr": subprocess.STDOUT, "timeout": 300}
        with log.open("w") as file:
            done = subprocess.run(command, stdout=file, check=False, **options)
        assert done.returncode == 0, log.read_text()
        return log.read_text()
