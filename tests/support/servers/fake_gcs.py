"""fake-gcs-server: Google Cloud Storage's JSON API, for any credentials."""

from __future__ import annotations

import json

from servers import install
from servers.process import ServerError, http_status
from servers.server import Server


class FakeGcs(Server):
    """A Google Cloud Storage service. Only one made with `on_disk=True` has its data after a restart.

    Uploads that are not finished are lost either way. On disk, the keys `x` and `x/y` can't both be objects.
    `ifGenerationMatch` is heeded in uploads and in compose (that is ours: `gcs/main.go`), not in copy and rewrite.
    gcsfs needs `GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT=false` in the environment before it is imported.
    """

    name = "fake-gcs-server"
    part = "gcs"
    client = "gcsfs"
    project = "tests"

    def __init__(self, *, on_disk: bool = False) -> None:
        super().__init__()
        self.on_disk = on_disk

    def command(self) -> list[str]:
        address = ["-host", self.host, "-port", str(self.port)]
        root = ["-filesystem-root", str(self.folder / "buckets")] if self.on_disk else []
        return [str(install.fake_gcs_server()), *address, *root]

    def make_bucket(self, bucket: str) -> str:
        """Make an empty bucket and return its name."""
        body = json.dumps({"name": bucket}).encode()
        status = http_status(self.port, "POST", f"/storage/v1/b?project={self.project}", body)
        if status != 200:
            raise ServerError(f"making the bucket {bucket!r} was answered by {status}")
        return bucket
