"""An SFTP server over a folder, with one user and password and a host key of its own: asyncssh, in a process."""

from __future__ import annotations

import asyncio
import socket
import sys
from contextlib import closing

from servers.process import LOOPBACK
from servers.server import Server

USER, PASSWORD = "pulsar", "sftp-pa55word"


class SftpServer(Server):
    """An SFTP server; the root that its clients see is the folder `files`."""

    name = "sftp"
    part = "sftp"
    client = "paramiko"

    def command(self) -> list[str]:
        self.files.mkdir(parents=True, exist_ok=True)
        return [sys.executable, __file__, str(self.port), str(self.folder / "host_key"), str(self.files)]

    @property
    def files(self):
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


async def _serve(port: int, key_file: str, files: str) -> None:
    import asyncssh

    class OneUser(asyncssh.SSHServer):
        def password_auth_supported(self) -> bool:
            return True

        def validate_password(self, username: str, password: str) -> bool:
            return (username, password) == (USER, PASSWORD)

    def folder(channel: object) -> asyncssh.SFTPServer:
        return asyncssh.SFTPServer(channel, chroot=files.encode())

    try:
        key = asyncssh.read_private_key(key_file)
    except OSError:
        key = asyncssh.generate_private_key("ssh-ed25519")
        key.write_private_key(key_file)
    server = await asyncssh.listen(LOOPBACK, port, server_factory=OneUser, server_host_keys=[key], sftp_factory=folder)
    await server.wait_closed()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), *sys.argv[2:]))
