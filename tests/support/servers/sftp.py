"""An SFTP server over a folder, with one user and password and a host key of its own."""

from __future__ import annotations

import socket
import sys
from contextlib import closing
from pathlib import Path

from servers.server import Server

USER, PASSWORD = "pulsar", "sftp-pa55word"


class SftpServer(Server):
    """An SFTP server; the root that its clients see is the folder `files`."""

    name = "sftp"
    part = "sftp"
    client = "paramiko"

    def command(self) -> list[str]:
        self.files.mkdir(parents=True, exist_ok=True)
        program = str(Path(__file__).with_name("sftp_program.py"))
        return [sys.executable, program, self.host, str(self.port), USER, PASSWORD, str(self.folder)]

    @property
    def files(self) -> Path:
        """The folder that is served."""
        return self.folder / "files"

    def is_ready(self) -> bool:
        with closing(socket.socket()) as probe:
            return probe.connect_ex((self.host, self.port)) == 0

    @property
    def endpoint(self) -> str:
        return f"sftp://{self.host}:{self.port}"

    @property
    def storage_options(self) -> dict[str, object]:
        """What fsspec needs to log in, without looking for keys of this machine's user."""
        return {"username": USER, "password": PASSWORD, "look_for_keys": False, "allow_agent": False}
