"""The base of all servers: one port and one folder, kept over a restart."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Protocol, Self, TypeVar

from servers.process import LOOPBACK, Child, ServerError, free_port, http_status


class Server(ABC):
    """A server on loopback, installed by its first `start`. It is a context manager that stops it.

    Fields, once started: `host`, `port`, `folder` (its data and its log) and `endpoint`.
    """

    name: str
    part: str  # as OFFLOAD_REQUIRE calls it
    client: str  # the Python module that tests reach it with
    host = LOOPBACK
    port: int
    folder: Path

    def __init__(self) -> None:
        self._child: Child | None = None

    @property
    def extra(self) -> str:
        """The extra that installs `client`."""
        return self.part

    @abstractmethod
    def command(self) -> list[str]:
        """The command line that serves `folder` at `port`; installs what it names."""

    def is_ready(self) -> bool:
        """Return whether the server answers."""
        return http_status(self.port, "GET", "/") is not None

    @property
    def endpoint(self) -> str:
        """The server's URL."""
        return f"http://{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        """The running server's process id."""
        return self._running().pid

    def start(self, folder: Path) -> Self:
        """Install, start with data in `folder` at a free port, and return when the server answers."""
        self.folder = folder
        self.port = free_port()
        self._launch()
        return self

    def restart(self) -> None:
        """Stop the server if it runs, and start it anew with the same port, folder and credentials."""
        if self._child is not None:
            self.stop()
        self._launch()

    def stop(self) -> None:
        """End the server in good order and wait until it is gone."""
        child, self._child = self._running(), None
        child.stop()

    def kill(self) -> None:
        """End the server at once, as a crash would (SIGKILL), and wait until it is gone; `restart` brings it back."""
        child, self._child = self._running(), None
        child.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            self.stop()

    def _launch(self) -> None:
        command = self.command()
        self.folder.mkdir(parents=True, exist_ok=True)
        child = Child(command, self.folder / f"{self.name}.log")
        child.wait_until(self.is_ready)
        self._child = child

    def _running(self) -> Child:
        if self._child is None:
            raise ServerError(f"{self.name} is not running")
        return self._child


AnyServer = TypeVar("AnyServer", bound=Server)


class StartServer(Protocol):
    """The fixture `start_server`: starts a server that ends with the test, and returns it."""

    def __call__(self, server: AnyServer) -> AnyServer: ...
