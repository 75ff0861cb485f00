"""BookKeeper as a ledger store that is read: ledgers of a live cluster, without a broker.

Descriptions come from ZooKeeper, entries from bookies. Nothing is written or fenced. What a reader may take from the
bookies is bounded, since brokers need them too. Source: docs/live-clusters.md.
"""

from __future__ import annotations

import re
from contextlib import closing

from offload_core.format.codec.ledger_metadata import LedgerState
from offload_core.storage.hot.bookkeeper.bookie_connection import BookieSecurity
from offload_core.storage.hot.bookkeeper.bookies import BookieLimits, Bookies
from offload_core.storage.hot.bookkeeper.bookkeeper_reader import BookKeeperLedgerReader
from offload_core.storage.hot.bookkeeper.described_ledgers import DescribedLedger, DescribedLedgers
from offload_core.storage.hot.bookkeeper.logins import SaslLogin
from offload_core.storage.pulsar_admin import AdminPlugin
from offload_core.storage.zookeeper_connection import connect_zookeeper, sasl_options
from offload_hooks.errors import FormatError, MetadataError, OptionError
from offload_hooks.ledger_stores import LedgerStatus, LedgerStoreDescription
from offload_hooks.option_text import as_count, as_flag, as_name, as_rate, as_seconds, as_secret
from offload_hooks.tls_options import tls_context_if

_LONGEST_S = 3600.0
_TOPIC = "pulsar/managed-ledger"
_POSITION = re.compile(r"([0-9]{1,19}):(-1|[0-9]{1,19})")


class BookKeeperLedgerStore:
    """The ledgers of a BookKeeper cluster; see `LedgerStore`. Options may be text.

    Args:
        url: the ZooKeeper, `zk://host:2181,…/chroot`, as Pulsar's `metadataStoreUrl` has it.
        ledgers_path: below the chroot, where BookKeeper keeps what it knows of ledgers.
        admin_url: `http://broker:8080`: open ledgers are read exactly as far as the broker that writes them has
            confirmed; the broker loads the topic for that. Without it they are read as far as the bookies can tell,
            which is some entries less.
        admin_token: a token (JWT) for that.
        admin_token_file: the file that holds it, instead.
        admin_ca_bundle: the certificates that brokers are verified by, instead of the machine's.
        tls: whether to speak TLS with bookies.
        ca_bundle: the certificates that bookies are verified by, instead of the machine's.
        verify_hostname: whether their names are verified as well.
        client_certificate: the file of a certificate that bookies are shown.
        client_key: the file of its key.
        sasl_mechanism: `DIGEST-MD5` or `GSSAPI` (Kerberos), where bookies want a login.
        sasl_username: of DIGEST-MD5.
        sasl_password: the same.
        sasl_password_file: the file that holds the password, instead.
        sasl_service: of GSSAPI, the first part of the bookies' principals.
        connections_per_bookie: the most, each used by one thread at a time.
        requests_per_bookie: the most single reads under way. A bookie refuses what is too much, from brokers as well.
        requests_per_second: of this store in all; an empty text for no limit.
        bytes_per_second: the same.
        timeout_s: how long a call may take, at most an hour.
        attempts: how often it is tried.
        zookeeper_digest: of the connection to ZooKeeper, as the option of the metadata store `zk:`.
        zookeeper_digest_file: the same.
        zookeeper_sasl_mechanism: the same.
        zookeeper_sasl_username: the same.
        zookeeper_sasl_password: the same.
        zookeeper_sasl_password_file: the same.
        zookeeper_sasl_service: the same.
        zookeeper_sasl_principal: the same.
        zookeeper_tls: the same.
        zookeeper_ca_bundle: the same.
        zookeeper_client_certificate: the same.
        zookeeper_client_key: the same.

    Raises:
        OptionError, MissingExtraError: options that make no sense, or need a library that is missing.
        StoreError: ZooKeeper cannot be reached.
    """

    def __init__(
        self,
        url: str,
        *,
        ledgers_path: str = "/ledgers",
        admin_url: str | None = None,
        admin_token: str | None = None,
        admin_token_file: str | None = None,
        admin_ca_bundle: str | None = None,
        tls: object = False,
        ca_bundle: str | None = None,
        verify_hostname: object = True,
        client_certificate: str | None = None,
        client_key: str | None = None,
        sasl_mechanism: str | None = None,
        sasl_username: str | None = None,
        sasl_password: str | None = None,
        sasl_password_file: str | None = None,
        sasl_service: str | None = None,
        connections_per_bookie: object = 4,
        requests_per_bookie: object = 256,
        requests_per_second: object = 20_000,
        bytes_per_second: object = 512 << 20,
        timeout_s: object = 30,
        attempts: object = 3,
        zookeeper_digest: str | None = None,
        zookeeper_digest_file: str | None = None,
        zookeeper_sasl_mechanism: str | None = None,
        zookeeper_sasl_username: str | None = None,
        zookeeper_sasl_password: str | None = None,
        zookeeper_sasl_password_file: str | None = None,
        zookeeper_sasl_service: str | None = None,
        zookeeper_sasl_principal: str | None = None,
        zookeeper_tls: object = False,
        zookeeper_ca_bundle: str | None = None,
        zookeeper_client_certificate: str | None = None,
        zookeeper_client_key: str | None = None,
    ) -> None:
        self._timeout_s = min(as_seconds("timeout_s", timeout_s), _LONGEST_S)
        self._attempts = as_count("attempts", attempts)
        limits = BookieLimits(
            connections=as_count("connections_per_bookie", connections_per_bookie),
            requests=as_count("requests_per_bookie", requests_per_bookie),
            requests_per_second=as_rate("requests_per_second", requests_per_second),
            bytes_per_second=as_rate("bytes_per_second", bytes_per_second),
        )
        path = as_name("ledgers_path", ledgers_path)
        if not re.fullmatch(r"(/[^/\s]+)+", path):
            raise OptionError("the option 'ledgers_path' is no path", expected="such as /ledgers")
        context = tls_context_if(tls, ca_bundle, client_certificate, client_key)
        if context is not None:
            context.check_hostname = as_flag("verify_hostname", verify_hostname)
        sasl = sasl_options(
            mechanism=sasl_mechanism,
            username=sasl_username,
            password=as_secret("sasl_password", sasl_password, sasl_password_file),
            service=sasl_service,
        )
        login = None if sasl is None else SaslLogin(**sasl)
        self._admin = None
        if admin_url is not None:
            self._admin = AdminPlugin(
                admin_url,
                token=admin_token,
                token_file=admin_token_file,
                ca_bundle=admin_ca_bundle,
                timeout_s=self._timeout_s,
                attempts=self._attempts,
            )
        elif admin_token or admin_token_file or admin_ca_bundle:
            raise OptionError("options of the admin REST are of no use without 'admin_url'")
        self._zookeeper, chroot = connect_zookeeper(
            url,
            digest=zookeeper_digest,
            digest_file=zookeeper_digest_file,
            sasl_mechanism=zookeeper_sasl_mechanism,
            sasl_username=zookeeper_sasl_username,
            sasl_password=zookeeper_sasl_password,
            sasl_password_file=zookeeper_sasl_password_file,
            sasl_service=zookeeper_sasl_service,
            sasl_principal=zookeeper_sasl_principal,
            tls=zookeeper_tls,
            ca_bundle=zookeeper_ca_bundle,
            client_certificate=zookeeper_client_certificate,
            client_key=zookeeper_client_key,
            timeout_s=min(self._timeout_s, 10.0),
            attempts=self._attempts,
        )
        self._ledgers = DescribedLedgers(self._zookeeper, chroot + path)
        self._bookies = Bookies(
            self._zookeeper, chroot + path, BookieSecurity(tls=context, login=login), limits
        )

    def __repr__(self) -> str:
        return f"<BookKeeperLedgerStore {self._ledgers.place}>"

    def describe(self) -> LedgerStoreDescription:
        """See `LedgerStore`."""
        return LedgerStoreDescription(name="bookkeeper", location=self._ledgers.place)

    def open(self, ledger_id: int) -> BookKeeperLedgerReader:
        """See `LedgerStore`."""
        return BookKeeperLedgerReader(
            ledger_id,
            self._ledgers,
            self._bookies,
            last_confirmed=self._last_confirmed if self._admin is not None else None,
            timeout_s=self._timeout_s,
            attempts=self._attempts,
        )

    def verify(self, ledger_id: int) -> LedgerStatus:
        """See `LedgerStore`. Each entry is read from one bookie that has it."""
        entry_id, size_bytes = 0, 0
        with closing(self.open(ledger_id)) as reader:
            status = reader.status()
            while entry_id < status.entry_count:
                batch = reader.read(entry_id, status.entry_count - 1, 4 << 20)
                entry_id, size_bytes = batch.stop_entry_id, size_bytes + batch.offsets[-1]
        if size_bytes != status.size_bytes:
            raise FormatError(
                "a ledger has another number of bytes than it says",
                key=self._ledgers.place,
                ledger_id=ledger_id,
                expected=status.size_bytes,
                found=size_bytes,
            )
        return status

    def ledger_ids(self) -> list[int]:
        """See `LedgerStore`. All ledgers of the cluster: also those of cursors, schemas and compacted topics."""
        return self._ledgers.ids()

    def close(self) -> None:
        """See `LedgerStore`."""
        self._bookies.close()
        self._zookeeper.close()
        if self._admin is not None:
            self._admin.close()

    def _last_confirmed(self, ledger_id: int, described: DescribedLedger) -> int | None:
        """The last confirmed entry as the broker has it that writes the ledger; None if it writes another by now."""
        topic = dict(described.metadata.custom).get(_TOPIC)
        if self._admin is None or topic is None or described.metadata.state is not LedgerState.OPEN:
            return None
        tenant, namespace, domain, name = (topic.decode(errors="replace").split("/") + [""] * 4)[:4]
        path = f"/admin/v2/{domain}/{tenant}/{namespace}/{name}/internalStats"
        stats = self._admin.client.get_json(path)
        if stats is None:
            return None
        position = (
            _POSITION.fullmatch(str(stats.get("lastConfirmedEntry"))) if isinstance(stats, dict) else None
        )
        if position is None:
            raise MetadataError("a broker's statistics have no last confirmed entry", key=path)
        return int(position[2]) if int(position[1]) == ledger_id else None
