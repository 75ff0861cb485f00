"""A Spark Connect server, from the jars that come with PySpark from 4.0 on."""

from __future__ import annotations

import socket
import sys
from importlib.util import find_spec
from pathlib import Path

from servers.server import Server


class SparkConnect(Server):
    """A server that is its own and only executor.

    Args:
        site: the folder of another PySpark; None for the installed one.
        master: its cores, and how often it tries a task.
    """

    name = "spark-connect"
    part = "spark"
    client = "grpc"
    extra = "connect"

    def __init__(self, site: Path | None = None, master: str = "local[2]") -> None:
        super().__init__()
        self._site = site
        self._master = master

    def command(self) -> list[str]:
        spark = self._site / "pyspark" if self._site else Path(str(find_spec("pyspark").origin)).parent
        settings = {
            "spark.master": self._master,
            "spark.ui.enabled": "false",
            "spark.log.level": "WARN",
            "spark.driver.bindAddress": self.host,
            "spark.driver.host": self.host,
            "spark.connect.grpc.binding.address": self.host,
            "spark.connect.grpc.binding.port": self.port,
            "spark.sql.shuffle.partitions": 2,
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.warehouse.dir": self.folder / "warehouse",
        }
        environment = {"SPARK_HOME": spark, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": self.host}
        if self._site:
            environment["PYTHONPATH"] = self._site
        return [
            *("env", f"--chdir={self.folder}", *(f"{name}={value}" for name, value in environment.items())),
            *(str(spark / "bin" / "spark-submit"), "--class"),
            "org.apache.spark.sql.connect.service.SparkConnectServer",
            *(word for name, value in settings.items() for word in ("--conf", f"{name}={value}")),
            "spark-internal",
        ]

    def is_ready(self) -> bool:
        """Return whether it accepts connections."""
        with socket.socket() as probe:
            return probe.connect_ex((self.host, self.port)) == 0

    @property
    def endpoint(self) -> str:
        """The URL for `remote(…)` and `--master`."""
        return f"sc://{self.host}:{self.port}"
