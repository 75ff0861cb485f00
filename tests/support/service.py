"""`offload serve`, or `offload own`, as a process of its own, on a free loopback port."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
from collections.abc import Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import jwt
from commands import COMMAND
from servers.process import Child, free_port
from waiting import wait_for

from offload_core.metadata.stores import ManagedLedgerRecords, open_metadata_store
from offload_core.storage.hot import FileLedgerStore
from offload_core.writing.managed_ledger import Environment, HotLedgers


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAnswer:
    """An answer of the service."""

    status: int
    text: str
    headers: Mapping[str, str]

    @property
    def json(self):
        """The body; None where there is none."""
        return json.loads(self.text) if self.text else None


def offloading(folder, *, service="", policies=""):
    """Settings of a service that offloads from a hot tier in this folder to a local tier in it, with an audit log."""
    return f"""
[hot_tier.options]
path = "{folder}/hot"
[audit_log]
path = "{folder}/audit.jsonl"
[service]
{service}
[policies]
driver = "local"
extra_configurations.root = "{folder}/cold"
{policies}
"""


@contextmanager
def owner(metadata, folder):
    """The environment of another process, beside a service with this metadata and the hot tier in this folder."""
    with (
        closing(open_metadata_store(metadata)) as store,
        closing(FileLedgerStore(folder / "hot", sync="never")) as hot,
    ):
        yield Environment(records=ManagedLedgerRecords(store), hot=HotLedgers(hot))


class Service:
    """The service with its database in `folder`, running while the block does.

    Args:
        settings: TOML, besides where the metadata is.
        certificate: of the service; then it speaks TLS.
        command: `serve` or `own`, and its own flags.
        metadata: the URL of its metadata store, if that is no database in `folder`.
        within: a command that the service is run by.
    """

    def __init__(
        self, folder, settings="", *, certificate=None, command=("serve",), metadata=None, within=()
    ):
        self.port = free_port()
        self.metadata = metadata or f"sqlite:{folder}/metadata.db"
        self._within = within
        self._folder, self._certificate, self._command = folder, certificate, command
        self.config = folder / "offload.toml"
        create = "" if metadata else "options.create = true\n"
        self.config.write_text(f'[metadata]\nurl = "{self.metadata}"\n{create}{settings}')

    @property
    def url(self):
        """The service's URL."""
        return f"{'http' if self._certificate is None else 'https'}://127.0.0.1:{self.port}"

    @property
    def log(self):
        """Its log so far."""
        return [json.loads(line) for line in (self._folder / "service.log").read_text().splitlines()]

    def __enter__(self):
        tls = []
        if self._certificate is not None:
            tls = ["--tls-certificate", str(self._certificate[0]), "--tls-key", str(self._certificate[1])]
        place = ["--config", str(self.config), "--port", str(self.port), *tls]
        command = [*self._within, str(COMMAND), *self._command, *place]
        self._child = Child(command, self._folder / "service.log")
        self._child.wait_until(self._is_up)
        return self

    def __exit__(self, *_):
        self._child.stop()

    @property
    def pid(self):
        """Its process."""
        return self._child.pid

    def open_descriptors(self):
        """Number of open descriptors of its process."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def resident_mib(self):
        """The memory that its process has, in MiB."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("VmRSS"))

    def end(self, by):
        """End it by a signal, and wait until it has ended."""
        os.kill(self._child.pid, by)
        wait_for(lambda: not self._child.is_running)

    def ask(self, method, path, body=None, *, headers=None):
        """Make a request; a body that is no bytes is sent as JSON."""
        if self._certificate is None:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        else:
            context = ssl.create_default_context(cafile=str(self._certificate[0]))
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=30, context=context)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        kind = {} if data is None else {"Content-Type": "application/json"}
        with closing(connection):
            connection.request(method, path, data, {**kind, **(headers or {})})
            answer = connection.getresponse()
            text = answer.read().decode()
            named = {name.lower(): value for name, value in answer.getheaders()}
            return ServiceAnswer(status=answer.status, text=text, headers=named)

    def _is_up(self):
        try:
            return self.ask("GET", "/admin/v2/brokers/health").status == 200
        except (OSError, http.client.HTTPException):
            return False


# --- A service with tokens for a superuser and for the admins of two tenants, and a store that never answers.


KEY = b"k" * 64
EXTRA = "managedLedgerExtraConfigurations"
ENDPOINT = "managedLedgerOffloadServiceEndpoint"
BUCKET = "managedLedgerOffloadBucket"
DRIVER = "managedLedgerOffloadDriver"


def bearer(role):
    """The headers of a role's token."""
    return {"Authorization": "Bearer " + jwt.encode({"sub": role}, KEY, "HS256")}


class TenantService(Service):
    """The service, whose `admin` is a superuser; `acme-admin` and `zeta-admin` are admins of these tenants.

    Args:
        service: more of the section `service`, as TOML.
    """

    def __init__(self, folder, settings="", *, service="", **more):
        (folder / "secret.key").write_bytes(KEY)
        tokens = f"""[service]
{service}
[service.tokens]
secret_key = "{folder}/secret.key"
superuser_roles = ["admin"]
tenant_admin_roles = {{acme = ["acme-admin"], zeta = ["zeta-admin"]}}
"""
        super().__init__(folder, tokens + settings, **more)

    def set(self, role, path, policies):
        """Have a role set offload policies: of `acme/n`, or of a topic `acme/n/t`."""
        return self.ask("POST", f"{_path(path)}/offloadPolicies", dict(policies), headers=bearer(role))

    def get(self, role, path, what="offloadPolicies"):
        """The answer that a role gets."""
        return self.ask("GET", f"{_path(path)}/{what}", headers=bearer(role))

    def remove(self, role, path):
        """Have a role remove offload policies."""
        return self.ask("DELETE", f"{_path(path)}/offloadPolicies", headers=bearer(role))

    def schema(self, role, topic):
        """Ask for a schema, which opens the topic's tier."""
        return self.ask("GET", f"/admin/v2/schemas/{topic}/schema", headers=bearer(role))


class SilentServer:
    """A server on loopback that accepts connections and never answers."""

    def __enter__(self):
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=1000)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        return self

    def __exit__(self, *_):
        self._listening.close()


def _path(name):
    level = "namespaces" if name.count("/") == 1 else "persistent"
    return f"/admin/v2/{level}/{name}"
