"""A ZooKeeper as a metadata store: a Pulsar's, which is only read, or a root of our own in any ensemble.

Writes are compare-and-set, and made exactly once, also if connections break. A write is one transaction of three
operations: check that the root's count of deletions is the same as when the node was inspected; change the node, if it
still has the same version; and set the write's number in a marker, an ephemeral node of this session that one write at
a time uses. If an answer is lost, the same transaction is sent again: it can succeed only if the first did not, and if
it fails, the marker shows whether the first did. If the session is lost as well, so is the marker: then an unchanged
node means that nothing was written, and otherwise the outcome is unknown. Source: docs/metadata-stores.md.

The root is marked as ours, or refused, so that nothing is written to a live Pulsar's tree. Its data identifies it, and
its version counts deletions: every writer checks both. ZooKeeper's versions of a node begin anew when it is deleted and
created again; with the count the two differ.
"""

from __future__ import annotations

import itertools
import os
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
)
from kazoo.protocol.serialization import CheckVersion, Create, Delete, SetData
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from offload_core.metadata.stores.record_paths import PULSARS
from offload_core.storage.zookeeper_connection import ZooKeeperConnection, connect_zookeeper
from offload_hooks.errors import (
    AccessDeniedError,
    BadMagicError,
    InvalidKeyError,
    OptionError,
    OutcomeUnknownError,
    StoreError,
    StoreUnavailableError,
    UnsupportedVersionError,
    VersionConflictError,
)
from offload_hooks.metadata_stores import check_path

MAX_VALUE_BYTES = 1_000_000
"""ZooKeeper closes the connection of a client that sends a request of 1 MiB (`jute.maxbuffer`)."""

MARKERS = ".writers"
_TURNS = 200
_LOOK_AGAIN = (BadVersionError, NoNodeError, NodeExistsError, NotEmptyError)

_KIND = b"pulsar-offload metadata "
MARK = _KIND + b"1"
"""The data of a root of ours."""

_ROOT_TURNS = 20


class ZooKeeperRoot:
    """The root of a metadata store; `path` is a ZooKeeper's, empty for the ensemble's own root."""

    def __init__(self, connection: ZooKeeperConnection, path: str) -> None:
        self.path = path
        self._connection = connection

    @property
    def acl(self) -> list[Any]:
        """The rights of our nodes: with a login no other user may write, without one all may."""
        found: list[Any] = (
            [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE] if self._connection.has_login else OPEN_ACL_UNSAFE
        )
        return found

    def generation(self) -> int:
        """The number of deletions so far. A root that is missing or empty is made ours.

        Raises:
            OptionError: the ensemble's own root, or a node of Pulsar's.
            BadMagicError: it holds something else. UnsupportedVersionError: it was written by a newer program.
        """
        self._check_names()
        for _ in range(_ROOT_TURNS):
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
        """Make a request that another process may make at the same time; the caller inspects the result."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """A node when it was inspected.

    Attributes:
        version: of its value, for the store's callers; None if it has none, or there is no such node.
        own_version: ZooKeeper's; None if there is no such node.
    """

    version: int | None
    own_version: int | None
    has_children: bool


class ZooKeeperWriter:
    """The writing half of the store at `root`, a path that is no node of Pulsar's."""

    def __init__(self, connection: ZooKeeperConnection, root: str) -> None:
        self._connection = connection
        self._root = ZooKeeperRoot(connection, root)
        self._numbers = itertools.count(1)
        self._free_markers: dict[int, list[str]] = {}
        """Sessions by process: a forked child's session has none of its parent's."""

    def put(self, path: str, value: bytes, expected_version: int | None) -> int:
        """See `WritableMetadataStore`."""
        at = self._node_of(path)
        _check_size(value, self._key(at))

        def change(node: _Node) -> Any:
            if node.own_version is None:
                return Create(at, bytes(value), self._root.acl, 0)
            return SetData(at, bytes(value), node.own_version)

        return self._write(at, expected_version, change)

    def delete(self, path: str, expected_version: int) -> None:
        """See `WritableMetadataStore`."""
        at = self._node_of(path)

        def change(node: _Node) -> Any:
            return SetData(at, None, node.own_version) if node.has_children else Delete(at, node.own_version)

        self._write(at, expected_version, change)
        with suppress(StoreError):  # the value is deleted; empty parents do no harm
            self._prune(at)

    def _write(self, at: str, expected_version: int | None, change: Callable[[_Node], Any]) -> int:
        for turn in range(_TURNS):
            generation = self._root.generation()
            node = self._look(at)
            if node.version != expected_version:
                raise VersionConflictError(
                    "a record has another version than expected",
                    key=self._key(at),
                    expected="none" if expected_version is None else expected_version,
                    found="none" if node.version is None else node.version,
                )
            version = self._commit(at, generation, node, change(node))
            if version is not None:
                return version
            if node.own_version is None:
                self._root.make_parents(at)
            time.sleep(min(0.05, turn / 1000))
        raise StoreUnavailableError(
            "other processes write to the same ZooKeeper all the time, and were faster", key=self._key(at)
        )

    def _look(self, at: str) -> _Node:
        """Inspect a node, not earlier than the root's generation that was read before."""
        stat = self._connection.ask(lambda client: client.exists_async(at), at)
        data: bytes | None = b"some"
        if stat is not None and not stat.dataLength:
            data, stat = self._connection.ask(lambda client: client.get_async(at), at) or (None, None)
        if stat is None:
            return _Node(version=None, own_version=None, has_children=False)
        return _Node(
            version=None if data is None else stat.mzxid,
            own_version=stat.version,
            has_children=stat.numChildren > 0,
        )

    def _commit(self, at: str, generation: int, node: _Node, change: Any) -> int | None:
        """Make one change; return the new version, or None if it was not made and the node must be inspected again.

        Raises:
            OutcomeUnknownError, AccessDeniedError, StoreError.
        """
        marker, number = self._marker(), b"%d" % next(self._numbers)
        operations = [self._in_generation(generation, change), change, SetData(marker, number, -1)]
        lost: StoreError | None = None
        for _ in range(self._connection.attempts + 1):
            try:
                results = self._transact(operations, at)
            except StoreError as error:
                lost = error
                if not error.retryable or not self._connection.is_back():
                    break
                continue
            if not (failure := _failure(results)):
                self._give_back(marker)
                return int(results[-1].mzxid)
            if lost is not None:
                return self._find_out(at, generation, node, marker, number, lost)
            if not isinstance(failure, _LOOK_AGAIN):
                raise self._refusal(failure, at)
            if not isinstance(results[-1], NoNodeError):  # else the marker is gone, with its session
                self._give_back(marker)
            return None
        raise self._unknown(at) from lost

    def _find_out(
        self, at: str, generation: int, node: _Node, marker: str, number: bytes, lost: Exception
    ) -> int | None:
        """Find out whether a change with a lost answer was made, after its repetition failed; as `_commit`."""
        try:
            found = self._connection.ask(lambda client: client.get_async(marker), marker)
            if found is not None:
                self._give_back(marker)
                return int(found[1].mzxid) if found[0] == number else None
            if (self._root.generation(), self._look(at)) == (generation, node):
                return None
        except StoreError as error:
            raise self._unknown(at) from error
        raise self._unknown(at) from lost

    def _prune(self, at: str) -> None:
        """Delete the nodes above a deleted one that are empty now."""
        parent = at.rpartition("/")[0]
        for _ in range(_TURNS):
            if parent == self._root.path:
                return
            generation = self._root.generation()
            node = self._look(parent)
            if node.version is not None or node.has_children:
                return
            if node.own_version is not None:
                change = Delete(parent, node.own_version)
                if _failure(self._transact([self._in_generation(generation, change), change], parent)):
                    continue
            parent = parent.rpartition("/")[0]

    def _in_generation(self, generation: int, change: Any) -> Any:
        """The operation that fails if there was a deletion since then; it counts this change if that is one."""
        if isinstance(change, Delete):
            return SetData(self._root.path, MARK, generation)
        return CheckVersion(self._root.path, generation)

    def _transact(self, operations: Sequence[Any], at: str) -> list[Any]:
        def request(client: KazooClient) -> Any:
            transaction = client.transaction()
            transaction.operations.extend(operations)
            return transaction.commit_async()

        results: list[Any] = self._connection.ask_once(request, at)
        return results

    # --- markers -------------------------------------------------------------------------------

    def _marker(self) -> str:
        """A marker that no other write uses."""
        with suppress(IndexError):
            return self._free_markers.setdefault(os.getpid(), []).pop()
        marker = f"{self._root.path}/{MARKERS}/{uuid.uuid4().hex}"
        self._root.make_parents(marker)
        self._connection.ask_once(
            lambda client: client.create_async(marker, b"", self._root.acl, ephemeral=True), marker
        )
        return marker

    def _give_back(self, marker: str) -> None:
        """Release a marker for other writes."""
        self._free_markers.setdefault(os.getpid(), []).append(marker)

    # --- names and errors ----------------------------------------------------------------------

    def _node_of(self, path: str) -> str:
        if check_path(path).split("/")[1] == MARKERS:
            raise InvalidKeyError("a path that the store needs for itself", found=path)
        return f"{self._root.path}{path}"

    def _key(self, at: str) -> str:
        return f"{self._connection.place}{at}"

    def _refusal(self, failure: KazooException, at: str) -> StoreError:
        if isinstance(failure, NoAuthError):
            return AccessDeniedError("ZooKeeper refuses a write", key=self._key(at))
        return StoreError("ZooKeeper refuses a write", key=self._key(at), found=type(failure).__name__)

    def _unknown(self, at: str) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            "the connection to ZooKeeper was lost while it was written to", key=self._key(at)
        )


def _failure(results: Sequence[Any]) -> KazooException | None:
    """The error of the first operation that failed in a transaction; None if none failed."""
    failures = (each for each in results if isinstance(each, KazooException))
    return next((each for each in failures if not isinstance(each, RolledBackError)), None)


def _check_size(value: bytes, key: str) -> None:
    if len(value) > MAX_VALUE_BYTES:
        raise OptionError(
            "a record is too large for ZooKeeper",
            key=key,
            expected=f"at most {MAX_VALUE_BYTES} bytes",
            found=len(value),
            hint="Records may be compressed.",
        )


class ZooKeeperStore:
    """The metadata store `zk:`; see `offload_hooks.metadata_stores.WritableMetadataStore`.

    It writes only below a root of its own: a chroot that is new, empty, or was written by this class before. The one
    exception is `replace`.

    Args:
        url: `zk://host:2181,…/chroot`, as Pulsar's `metadataStoreUrl` has it, which may leave out the slashes.
        digest: `user:password` of ZooKeeper's scheme `digest`.
        digest_file: the file that holds it, instead.
        sasl_mechanism: `DIGEST-MD5` or `GSSAPI` (Kerberos).
        sasl_username, sasl_password: of DIGEST-MD5.
        sasl_password_file: the file that holds the password, instead.
        sasl_service, sasl_principal: of GSSAPI.
        tls: whether to speak TLS; the server's name is verified as well.
        ca_bundle: the certificates that the servers are verified by, instead of the machine's.
        client_certificate, client_key: files of a certificate that the servers are shown, and of its key.
        timeout_s: how long it may take to be connected, and each request.
        attempts: the most requests for one answer.
    """

    def __init__(
        self,
        url: str,
        *,
        digest: str | None = None,
        digest_file: str | None = None,
        sasl_mechanism: str | None = None,
        sasl_username: str | None = None,
        sasl_password: str | None = None,
        sasl_password_file: str | None = None,
        sasl_service: str | None = None,
        sasl_principal: str | None = None,
        tls: object = False,
        ca_bundle: str | None = None,
        client_certificate: str | None = None,
        client_key: str | None = None,
        timeout_s: object = 10,
        attempts: object = 3,
    ) -> None:
        self._connection, self._root = connect_zookeeper(
            url,
            digest=digest,
            digest_file=digest_file,
            sasl_mechanism=sasl_mechanism,
            sasl_username=sasl_username,
            sasl_password=sasl_password,
            sasl_password_file=sasl_password_file,
            sasl_service=sasl_service,
            sasl_principal=sasl_principal,
            tls=tls,
            ca_bundle=ca_bundle,
            client_certificate=client_certificate,
            client_key=client_key,
            timeout_s=timeout_s,
            attempts=attempts,
        )
        self._writer = ZooKeeperWriter(self._connection, self._root)

    def get(self, path: str) -> tuple[bytes, int] | None:
        """See `WritableMetadataStore`. The version is that of ZooKeeper's transaction (`mzxid`)."""
        found = self._connection.read(f"{self._root}{check_path(path)}")
        value, stat = (None, None) if found is None else found
        if value is None or stat is None:  # a node without data only leads to others
            return None
        return value, stat.mzxid

    def children(self, path: str) -> list[str]:
        """See `WritableMetadataStore`."""
        return self._connection.children(f"{self._root}{check_path(path)}")

    def put(self, path: str, value: bytes, expected_version: int | None) -> int:
        """See `WritableMetadataStore`."""
        return self._writer.put(path, value, expected_version)

    def delete(self, path: str, expected_version: int) -> None:
        """See `WritableMetadataStore`."""
        self._writer.delete(path, expected_version)

    def replace(self, path: str, value: bytes, expected_version: int) -> int:
        """Replace the value of a node that a running Pulsar wrote; see `live_records.LiveStore`."""
        node = f"{self._root}{check_path(path)}"
        key = f"{self._connection.place}{node}"
        _check_size(value, key)
        stat = self._connection.ask(lambda client: client.exists_async(node), node)
        if stat is not None and stat.mzxid == expected_version:
            with suppress(BadVersionError, NoNodeError):
                try:
                    changed = self._connection.ask_once(
                        lambda client: client.set_async(node, bytes(value), stat.version), node
                    )
                except AccessDeniedError:
                    raise
                except StoreError as error:
                    raise OutcomeUnknownError(
                        "whether a record was changed is not known: ZooKeeper's answer is lost", key=key
                    ) from error
                return int(changed.mzxid)
        raise VersionConflictError(
            "a record was changed by others", key=key, expected=expected_version, found="another version"
        )

    def close(self) -> None:
        """See `WritableMetadataStore`."""
        self._connection.close()
