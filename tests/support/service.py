"""`offload serve` as a process of its own, on a free loopback port."""

from __future__ import annotations

import http.client
import json
import os
import signal
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from commands import COMMAND
from servers.process import Child, free_port


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer of the service."""

    status: int
    text: str
    headers: Mapping[str, str]

    @property
    def json(self) -> Any:
        """The body; None where there is none."""
        return json.loads(self.text) if self.text else None


class Service:
    """The service with its database in `folder`, running while the block does.

    Args:
        settings: TOML, besides where the metadata is.
        certificate: of the service; then it speaks TLS.
        env: more of its environment.
    """

    def __init__(
        self,
        folder: Path,
        settings: str = "",
        *,
        certificate: tuple[Path, Path] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.port = free_port()
        self.metadata = f"sqlite:{folder}/metadata.db"
        self._folder, self._env, self._certificate = folder, env, certificate
        self.config = folder / "offload.toml"
        self.config.write_text(f'[metadata]\nurl = "{self.metadata}"\noptions.create = true\n{settings}')

    @property
    def url(self) -> str:
        """The service's URL."""
        return f"{'http' if self._certificate is None else 'https'}://127.0.0.1:{self.port}"

    @property
    def log(self) -> list[dict[str, Any]]:
        """What it logged so far."""
        return [json.loads(line) for line in (self._folder / "service.log").read_text().splitlines()]

    def __enter__(self) -> Self:
        tls: list[str] = []
        if self._certificate is not None:
            tls = ["--tls-certificate", str(self._certificate[0]), "--tls-key", str(self._certificate[1])]
        command = [str(COMMAND), "serve", "--config", str(self.config), "--port", str(self.port), *tls]
        self._child = Child(command, self._folder / "service.log", self._env)
        self._child.wait_until(self._is_up)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.stop()

    @property
    def pid(self) -> int:
        """Its process."""
        return self._child.pid

    def open_descriptors(self) -> int:
        """How many descriptors its process has."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def resident_mib(self) -> int:
        """The memory that its process has, in MiB."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("VmRSS"))

    def end(self, by: signal.Signals) -> None:
        """End it by a signal, and wait until it has ended."""
        os.kill(self._child.pid, by)
        deadline = time.monotonic() + 60
        while self._child.is_running:
            assert time.monotonic() < deadline, "it has not ended"
            time.sleep(0.01)

    def ask(
        self, method: str, path: str, body: object = None, *, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Make a request; a body that is no bytes is sent as JSON."""
        connection: http.client.HTTPConnection
        if self._certificate is None:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        else:
            context = ssl.create_default_context(cafile=str(self._certificate[0]))
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=30, context=context)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        kind = {} if data is None else {"Content-Type": "application/json"}
        try:
            connection.request(method, path, data, {**kind, **(headers or {})})
            answer = connection.getresponse()
            text = answer.read().decode()
            named = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(status=answer.status, text=text, headers=named)
        finally:
            connection.close()

    def _is_up(self) -> bool:
        try:
            return self.ask("GET", "/admin/v2/brokers/health").status == 200
        except (OSError, http.client.HTTPException):
            return False
