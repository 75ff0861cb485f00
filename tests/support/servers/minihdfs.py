"""Hadoop's mini cluster: a namenode with WebHDFS and two datanodes in one JVM, with permissions checked.

A file counts as closed before the datanodes have reported its last block. Otherwise the first request to close it comes
too early, and clients wait half a second before they ask again. The namenode allows that only of blocks with more
copies than it must have, hence two.
"""

from __future__ import annotations

import getpass
import json
import os
from pathlib import Path

from servers import install
from servers.process import free_port
from servers.server import Server

_DATANODES = 2


class MiniHdfs(Server):
    """An HDFS file system. Clients say who they are (HADOOP_USER_NAME); `superuser` may do anything.

    Fields besides those of all servers: `url` (hdfs://), `web_port` and `superuser`.
    """

    name = "minihdfs"
    part = "hdfs"
    client = "hdfs_native"
    web_port: int

    def start(self, folder: Path) -> MiniHdfs:
        self.web_port = free_port()
        return super().start(folder)

    def command(self) -> list[str]:
        java, jars = install.minihdfs()
        data = self.folder / "data"
        settings = {
            "hdfs.minidfs.basedir": data,
            "dfs.replication": _DATANODES,
            "dfs.namenode.file.close.num-committed-allowed": 1,
            "dfs.permissions.enabled": "true",
            "dfs.namenode.fs-limits.min-block-size": 512,
            "dfs.namenode.safemode.extension": 0,
        }
        self._details.unlink(missing_ok=True)
        command = [str(java), "-Xmx512m", "-XX:+UseSerialGC", f"-DHADOOP_USER_NAME={self.superuser}"]
        command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        command += [f"-Djava.io.tmpdir={self.folder}"]  # a killed cluster leaves its web server's files there
        command += ["-cp", f"{jars}/*", "org.apache.hadoop.test.MiniDFSClusterManager"]
        command += [] if data.exists() else ["-format"]
        command += ["-nnport", str(self.port), "-httpport", str(self.web_port)]
        command += ["-datanodes", str(_DATANODES)]
        command += ["-writeDetails", str(self._details)]
        return command + [word for name, value in settings.items() for word in ("-D", f"{name}={value}")]

    def is_ready(self) -> bool:
        """Return whether the cluster has written its details, as it does when the datanode is up."""
        try:
            json.loads(self._details.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return False
        return True

    @property
    def url(self) -> str:
        """The file system's URL for HDFS clients."""
        return f"hdfs://{self.host}:{self.port}"

    @property
    def endpoint(self) -> str:
        """The namenode's URL for WebHDFS clients, without the path `/webhdfs/v1`."""
        return f"http://{self.host}:{self.web_port}"

    @property
    def superuser(self) -> str:
        """The user that the cluster runs as, who may do anything."""
        return os.environ.get("HADOOP_USER_NAME") or getpass.getuser()

    @property
    def _details(self) -> Path:
        return self.folder / "details.json"
