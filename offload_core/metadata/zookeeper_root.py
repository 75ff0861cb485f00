"""The root of our own in a ZooKeeper: marked as ours, or refused, so that none is written where a live Pulsar's is.

The root's data says what it is, and its version counts deletions: whoever writes checks both. ZooKeeper lets versions
of a node begin anew when it is deleted and made again; with the count, what was read before is never taken for it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from offload_core.metadata.live_pulsar import PULSARS
from offload_core.metadata.zookeeper_connection import ZooKeeperConnection
from offload_hooks.errors import BadMagicError, OptionError, StoreUnavailableError, UnsupportedVersionError

_KIND = b"pulsar-offload metadata "
MARK = _KIND + b"1"
"""The data of a root of ours."""

_TURNS = 20


class ZooKeeperRoot:
    """The root of a metadata store; `path` is a ZooKeeper's, empty for the ensemble's own root."""

    def __init__(self, connection: ZooKeeperConnection, path: str) -> None:
        self.path = path
        self._connection = connection

    @property
    def acl(self) -> list[Any]:
        """Who may do what with nodes of ours: with a login nobody else may write, without one all may."""
        found: list[Any] = (
            [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE] if self._connection.has_login else OPEN_ACL_UNSAFE
        )
        return found

    def generation(self) -> int:
        """How many deletions there were. A root that is not there yet, or empty, is made one of ours.

        Raises:
            OptionError: the ensemble's own root, or a node of Pulsar's.
            BadMagicError: it holds something else. UnsupportedVersionError: it was written by a newer program.
        """
        self._check_names()
        for _ in range(_TURNS):
            found = self._connection.ask(self._get, self.path)
            if found is None:
                self.make_parents(self.path)
                self._try(lambda client: client.create_async(self.path, MARK, self.acl))
                continue
            data, stat = found
            if data == MARK:
                generation: int = stat.version
                return generation
            if data or stat.numChildren:
                raise self._refusal(data or b"")
            self._claim(stat.version)
        raise StoreUnavailableError("the root of a metadata store is being changed by others", key=self._key)

    def make_parents(self, path: str) -> None:
        """Make the nodes above `path` that are missing, without data."""
        parts = path.split("/")[1:-1]
        for depth in range(1, len(parts) + 1):
            self._make_parent("/" + "/".join(parts[:depth]))

    def _make_parent(self, node: str) -> None:
        if self._connection.ask(lambda client: client.exists_async(node), node) is None:
            self._try(lambda client: client.create_async(node, None, self.acl))

    @property
    def _key(self) -> str:
        return f"{self._connection.place}{self.path}"

    def _get(self, client: KazooClient) -> Any:
        client.sync_async(self.path)
        return client.get_async(self.path)

    def _try(self, request: Callable[[KazooClient], Any]) -> None:
        """Ask for what another process may do at the same time; who looks again sees what came of it."""
        with suppress(NodeExistsError, NoNodeError, BadVersionError):
            self._connection.ask_once(request, self.path)

    def _claim(self, version: int) -> None:
        self._try(lambda client: client.set_async(self.path, MARK, version))

    def _check_names(self) -> None:
        names = self.path.split("/")[1:]
        if not names or not PULSARS.isdisjoint(names):
            raise OptionError(
                "a ZooKeeper is written only below a root of its own",
                key=self._key,
                expected="a URL such as zk://host:2181/pulsar-offload",
            )

    def _refusal(self, data: bytes) -> BadMagicError | UnsupportedVersionError:
        if data.startswith(_KIND):
            return UnsupportedVersionError(
                "the root of a metadata store has a version that is not known here",
                key=self._key,
                expected=MARK.decode(),
                found=ascii(data[:50]),
                hint="Upgrade pulsar-offload: pip install --upgrade pulsar-offload.",
            )
        names = self._connection.ask(lambda client: client.get_children_async(self.path), self.path) or []
        what = "a live Pulsar's tree is there" if not PULSARS.isdisjoint(names) else "something else is there"
        return BadMagicError(
            f"nothing is written to a ZooKeeper where {what}",
            key=self._key,
            expected="a root that is new, empty, or ours",
            found=", ".join(sorted(names)[:5]) or "data",
            hint="Name a root of its own: zk://host:2181/pulsar-offload",
        )
