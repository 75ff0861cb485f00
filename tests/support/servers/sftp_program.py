"""The program of `SftpServer`: `sftp_program.py HOST PORT USER PASSWORD FOLDER` serves FOLDER/files by asyncssh."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import asyncssh


async def serve(host: str, port: int, user: str, password: str, folder: Path) -> None:
    """Serve until the process ends."""

    class OneUser(asyncssh.SSHServer):
        def password_auth_supported(self) -> bool:
            return True

        def validate_password(self, username: str, given: str) -> bool:
            return (username, given) == (user, password)

    def files(channel: asyncssh.SSHServerChannel) -> asyncssh.SFTPServer:
        return asyncssh.SFTPServer(channel, chroot=str(folder / "files").encode())

    key_file = folder / "host_key"  # the same after a restart
    if not key_file.exists():
        asyncssh.generate_private_key("ssh-ed25519").write_private_key(key_file)
    keys = {"server_host_keys": [str(key_file)]}
    server = await asyncssh.listen(host, port, server_factory=OneUser, sftp_factory=files, **keys)
    await server.wait_closed()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4], Path(sys.argv[5])))
