"""versitygw: S3 over a folder. A bucket is a folder there; the keys `x` and `x/y` can't both be objects."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

from servers import install
from servers.server import Server


@dataclass(frozen=True, slots=True, kw_only=True)
class S3User:
    """An access key and its secret."""

    access_key: str
    secret_key: str


class Versitygw(Server):
    """An S3 service in one region, path-style, with a root user and any number of others."""

    name = "versitygw"
    part = "s3"
    client = "s3fs"
    region = "us-east-1"
    root = S3User(access_key="root-access-key", secret_key="root-secret-key")

    def command(self) -> list[str]:
        users, data = self.folder / "users", self.folder / "buckets"
        users.mkdir(parents=True, exist_ok=True)
        data.mkdir(parents=True, exist_ok=True)
        address = f"{self.host}:{self.port}"
        root = ["--access", self.root.access_key, "--secret", self.root.secret_key]
        server = [str(install.versitygw()), "--port", address, "--region", self.region, *root]
        return [*server, "--quiet", "--keep-alive", "--iam-dir", str(users), "posix", str(data)]

    def make_bucket(self, bucket: str) -> str:
        """Make an empty bucket (3 to 63 of a-z, 0-9 and `-`) that the root user owns, and return its name."""
        (self.folder / "buckets" / bucket).mkdir()
        return bucket

    def add_user(self, access_key: str) -> S3User:
        """Add a user who may read and write no bucket until a bucket policy allows it."""
        user = S3User(access_key=access_key, secret_key=f"{access_key}-secret")
        self._admin("create-user", "--access", user.access_key, "--secret", user.secret_key, "--role", "user")
        return user

    def _admin(self, *arguments: str) -> None:
        root = ["--access", self.root.access_key, "--secret", self.root.secret_key]
        program = [str(install.versitygw()), "admin", *root, "--endpoint-url", self.endpoint]
        subprocess.run([*program, *arguments], check=True, capture_output=True, timeout=60)
