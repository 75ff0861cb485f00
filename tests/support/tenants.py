"""A service with tokens for a superuser and for the admins of two tenants, and a store that never answers."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import jwt
from service import Answer, Service

KEY = b"k" * 64
EXTRA = "managedLedgerExtraConfigurations"
ENDPOINT = "managedLedgerOffloadServiceEndpoint"
BUCKET = "managedLedgerOffloadBucket"
DRIVER = "managedLedgerOffloadDriver"


def bearer(role: str) -> dict[str, str]:
    """The headers of a role's token."""
    return {"Authorization": "Bearer " + jwt.encode({"sub": role}, KEY, "HS256")}


class TenantService(Service):
    """The service, whose `admin` is a superuser; `acme-admin` and `zeta-admin` are admins of these tenants.

    Args:
        service: more of the section `service`, as TOML.
    """

    def __init__(self, folder: Path, settings: str = "", *, service: str = "", **more: Any) -> None:
        (folder / "secret.key").write_bytes(KEY)
        tokens = f"""[service]
{service}
[service.tokens]
secret_key = "{folder}/secret.key"
superuser_roles = ["admin"]
tenant_admin_roles = {{acme = ["acme-admin"], zeta = ["zeta-admin"]}}
"""
        super().__init__(folder, tokens + settings, **more)

    def set(self, role: str, path: str, policies: Mapping[str, Any]) -> Answer:
        """Have a role set offload policies: of `acme/n`, or of a topic `acme/n/t`."""
        return self.ask("POST", f"{_path(path)}/offloadPolicies", dict(policies), headers=bearer(role))

    def get(self, role: str, path: str, what: str = "offloadPolicies") -> Answer:
        """What a role is told."""
        return self.ask("GET", f"{_path(path)}/{what}", headers=bearer(role))

    def remove(self, role: str, path: str) -> Answer:
        """Have a role remove offload policies."""
        return self.ask("DELETE", f"{_path(path)}/offloadPolicies", headers=bearer(role))

    def schema(self, role: str, topic: str) -> Answer:
        """Ask for a schema, which opens the topic's tier."""
        return self.ask("GET", f"/admin/v2/schemas/{topic}/schema", headers=bearer(role))


class SilentServer:
    """A server on loopback that takes connections and never says anything."""

    def __enter__(self) -> Self:
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=1000)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listening.close()


def _path(name: str) -> str:
    level = "namespaces" if name.count("/") == 1 else "persistent"
    return f"/admin/v2/{level}/{name}"
