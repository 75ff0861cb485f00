"""A ZooKeeper as a metadata store: a Pulsar's, which is only read, or a root of our own in any ensemble.

Source: docs/metadata-stores.md.
"""

from __future__ import annotations

import re
from typing import Any

from kazoo.client import KazooClient

from offload_core.metadata.zookeeper_connection import ZooKeeperConnection
from offload_core.metadata.zookeeper_writes import ZooKeeperWriter
from offload_hooks.errors import MissingExtraError, OptionError
from offload_hooks.metadata_stores import check_path
from offload_hooks.option_text import as_choice, as_count, as_flag, as_seconds, as_secret
from offload_hooks.tls_options import tls_context

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
            client.sync_async(node)  # else a server that lags behind tells of what was
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
