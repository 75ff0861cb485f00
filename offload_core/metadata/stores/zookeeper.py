"""A ZooKeeper as a metadata store: a Pulsar's, which is only read, or a root of our own in any ensemble.

Writes are compare-and-set, and made exactly once, also if connections break. A write is one transaction of three
operations: check that the root's count of deletions is the same as when the node was inspected (see
`zookeeper_connection`); change the node, if it still has the same version; and set the write's number in a marker, an
ephemeral node of this session that one write at a time uses. If an answer is lost, the same transaction is sent again:
it can succeed only if the first did not, and if it fails, the marker shows whether the first did. If the session is
lost as well, so is the marker: then an unchanged node means that nothing was written, and otherwise the outcome is
unknown. Source: docs/metadata-stores.md.
"""

from __future__ import annotations

import itertools
import os
import re
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

from offload_core.metadata.stores.zookeeper_connection import MARK, ZooKeeperConnection, ZooKeeperRoot
from offload_hooks.errors import (
    AccessDeniedError,
    InvalidKeyError,
    MissingExtraError,
    OptionError,
    OutcomeUnknownError,
    StoreError,
    StoreUnavailableError,
    VersionConflictError,
)
from offload_hooks.metadata_stores import check_path
from offload_hooks.option_text import as_choice, as_count, as_flag, as_seconds, as_secret
from offload_hooks.tls_options import tls_context

MAX_VALUE_BYTES = 1_000_000
"""ZooKeeper closes the connection of a client that sends a request of 1 MiB (`jute.maxbuffer`)."""

MARKERS = ".writers"
_TURNS = 200
_LOOK_AGAIN = (BadVersionError, NoNodeError, NodeExistsError, NotEmptyError)


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
        if len(value) > MAX_VALUE_BYTES:
            raise OptionError(
                "a record is too large for ZooKeeper",
                key=self._key(at),
                expected=f"at most {MAX_VALUE_BYTES} bytes",
                found=len(value),
                hint="Records may be compressed.",
            )

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


_FORM = "zk://host:2181, or zk://host-1:2181,host-2:2181/chroot"
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")
_MECHANISMS = ("DIGEST-MD5", "GSSAPI")


class ZooKeeperStore:
    """The metadata store `zk:`; see `offload_hooks.metadata_stores.WritableMetadataStore`.

    It writes only below a root of its own: a chroot that is new, empty, or was written by this class before.

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
        hosts, slash, chroot = parse_hosts(url).partition("/")
        speaks_tls = as_flag("tls", tls)
        if not speaks_tls and (ca_bundle or client_certificate or client_key):
            raise OptionError("certificates are of no use without TLS", hint="Set the option 'tls' to true.")
        secret = as_secret("digest", digest, digest_file)
        if secret is not None and ":" not in secret:
            raise OptionError("the option 'digest' has another form", expected="user:password")
        self._root = f"{slash}{chroot}"
        self._connection = ZooKeeperConnection(
            place=f"zk://{hosts}",
            hosts=hosts,
            digest=secret,
            sasl=_sasl_options(
                mechanism=sasl_mechanism,
                username=sasl_username,
                password=as_secret("sasl_password", sasl_password, sasl_password_file),
                service=sasl_service,
                principal=sasl_principal,
            ),
            tls=tls_context(ca_bundle, client_certificate, client_key) if speaks_tls else None,
            timeout_s=as_seconds("timeout_s", timeout_s),
            attempts=as_count("attempts", attempts),
        )
        self._writer = ZooKeeperWriter(self._connection, self._root)

    def get(self, path: str) -> tuple[bytes, int] | None:
        """See `WritableMetadataStore`. The version is that of ZooKeeper's transaction (`mzxid`)."""
        node = f"{self._root}{check_path(path)}"

        def request(client: KazooClient) -> Any:
            client.sync_async(node)  # else a server that lags may answer with an old state
            return client.get_async(node)

        found = self._connection.ask(request, node)
        if found is None or found[0] is None:  # a node without data only leads to others
            return None
        value, stat = found
        return value, stat.mzxid

    def children(self, path: str) -> list[str]:
        """See `WritableMetadataStore`."""
        node = f"{self._root}{check_path(path)}"

        def request(client: KazooClient) -> Any:
            client.sync_async(node)
            return client.get_children_async(node)

        return list(self._connection.ask(request, node) or ())

    def put(self, path: str, value: bytes, expected_version: int | None) -> int:
        """See `WritableMetadataStore`."""
        return self._writer.put(path, value, expected_version)

    def delete(self, path: str, expected_version: int) -> None:
        """See `WritableMetadataStore`."""
        self._writer.delete(path, expected_version)

    def close(self) -> None:
        """See `WritableMetadataStore`."""
        self._connection.close()


def parse_hosts(url: str) -> str:
    """`host:port,…/chroot` of a URL, as kazoo takes it.

    Raises:
        OptionError: another form. A user or password in it is never shown.
    """
    hosts = url.partition(":")[2].removeprefix("//").rstrip("/")
    names, slash, chroot = hosts.partition("/")
    if "@" in names:
        raise OptionError(
            "the URL of a ZooKeeper must not hold a user or password", hint="Give the option 'digest_file'."
        )
    if not all(_HOST.fullmatch(name) for name in names.split(",")):
        raise OptionError("this is no URL of a ZooKeeper", expected=_FORM)
    if slash and any(part in ("", ".", "..") or not part.isprintable() for part in chroot.split("/")):
        raise OptionError("the chroot of a ZooKeeper is no path", expected=_FORM)
    return hosts


def _sasl_options(*, mechanism: str | None, **given: str | None) -> dict[str, str] | None:
    options = {name: value for name, value in given.items() if value is not None}
    if mechanism is None:
        if options:
            raise OptionError("options of SASL are of no use without 'sasl_mechanism'")
        return None
    options["mechanism"] = as_choice("sasl_mechanism", mechanism, _MECHANISMS)
    if mechanism == "DIGEST-MD5" and not options.keys() >= {"username", "password"}:
        raise OptionError("the SASL mechanism DIGEST-MD5 needs 'sasl_username' and 'sasl_password'")
    try:
        import puresasl  # noqa: F401 - of kazoo[sasl], and needed for nothing else
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "SASL needs the module 'puresasl', which is not installed",
            hint="Install it: pip install 'kazoo[sasl]'",
        ) from error
    return options
