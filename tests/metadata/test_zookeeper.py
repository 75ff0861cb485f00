"""Records from a ZooKeeper: a real one, plain, with logins, by TLS; and what is none."""

from __future__ import annotations

import itertools
import logging
import socket
import threading
from contextlib import closing, contextmanager, suppress

import pytest
from golden import COLUMNS, assert_topic_is_as_expected
from kazoo.protocol.states import KeeperState
from kazoo.security import make_digest_acl
from network.admin import raises_without
from network.fronts import make_certificate
from records import MANAGED_LEDGERS, ZOOKEEPER_RECORDS, closed, copied, managed_ledger, still_open
from servers.zookeeper import ZooKeeper
from tiers import put_broker_objects, uuid_of

from offload_core.format.messages.compression import Compression
from offload_core.metadata.catalogue import TopicName
from offload_core.metadata.records import (
    StoredRecord,
    pack_managed_ledger_info,
    pack_stored_record,
    parse_stored_record,
)
from offload_core.metadata.stores.zookeeper import ZooKeeperStore
from offload_core.storage.tier import open_store
from offload_core.storage.zookeeper_connection import parse_hosts
from offload_hooks.errors import (
    AccessDeniedError,
    DataLossError,
    MetadataError,
    OptionError,
    StoreError,
    StoreTimeoutError,
    UnknownTopicError,
)
from pulsar_offload import open_tier, scan

SECRET = "geheim"
WRONG = "falsch"
INFO = managed_ledger(closed(3, 2, copied(uuid_of(3))), still_open(4))
RECORD = pack_managed_ledger_info(INFO)

_numbers = itertools.count()


@pytest.fixture
def chroot(client):
    """A path of the test's own, with nothing below it."""
    path = f"/pulsar-{next(_numbers)}"
    client.create(path)
    return path


def write(client, chroot, records, **options):
    for name, value in records.items():
        client.create(f"{chroot}/managed-ledgers/{name}", value, makepath=True, **options)


def load(url, **options):
    with open_tier("/nowhere") as tier:
        return tier.records(url, options)


def names(url, **options):
    return sorted(name.full for name in load(url, **options))


# --- what there is -----------------------------------------------------------------------------


def test_records_are_read_bare_and_compressed_as_pulsar_keeps_them(zookeeper, client, chroot):
    stored = {path.stem: path.read_bytes() for path in ZOOKEEPER_RECORDS}
    write(client, chroot, {f"t/n/persistent/{name}": value for name, value in stored.items()})
    expected = {
        TopicName(f"persistent://t/n/{name}"): parse_stored_record(value).info
        for name, value in stored.items()
    }
    assert load(f"{zookeeper.endpoint}{chroot}") == expected
    assert (
        load(f"zk:{zookeeper.host}:{zookeeper.port},{zookeeper.host}:{zookeeper.port}{chroot}/") == expected
    )


def test_topics_of_all_tenants_are_found_and_nothing_else_is_taken_for_one(zookeeper, client, chroot):
    write(
        client, chroot,
        {
            "acme/cold/persistent/a": RECORD,
            "acme/cold/persistent/a/my-subscription": b"a cursor's record",
            "acme/cold/persistent/x%2Fy-partition-3": RECORD,
            "acme/cold/non-persistent/b": b"not a record",
            "acme/east/old/persistent/c": RECORD,
            "other/ns/persistent/d": RECORD,
        },
    )  # fmt: skip
    assert names(f"{zookeeper.endpoint}{chroot}") == [
        "persistent://acme/cold/a",
        "persistent://acme/cold/x/y-partition-3",
        "persistent://acme/east/old/c",
        "persistent://other/ns/d",
    ]


def test_only_what_is_asked_for_is_read(zookeeper, client, chroot):
    good = {f"acme/cold/persistent/orders-partition-{i}": RECORD for i in range(2)}
    write(
        client,
        chroot,
        good | {"acme/cold/persistent/broken": b"\x0a\x05", "other/ns/persistent/broken": b"\x0a\x05"},
    )
    with open_tier("/nowhere") as tier:
        for selection in ({"topics": "acme/cold/orders"}, {"topics_pattern": "acme/cold/orders.*"}):
            with pytest.raises(
                DataLossError,
                match=r"a ledger of persistent://acme/cold/orders-partition-0 has no complete copy \(ledger 3\)",
            ):
                scan(tier, records=f"{zookeeper.endpoint}{chroot}", **selection)
        with pytest.raises(
            MetadataError, match=r"cannot be parsed.*object /managed-ledgers/acme/cold/persistent/broken"
        ):
            scan(tier, "acme/cold/broken", records=f"{zookeeper.endpoint}{chroot}")
        with pytest.raises(UnknownTopicError, match="orders-partition-0"):
            scan(tier, "acme/cold/no", records=f"{zookeeper.endpoint}{chroot}")


@pytest.mark.parametrize("path", ["", "/not/there"])
def test_where_nothing_is_there_are_no_topics(zookeeper, chroot, path):
    assert names(f"{zookeeper.endpoint}{chroot}{path}") == []


def test_topics_are_read_by_their_records_as_pulsars_clients_read_them(zookeeper, client, chroot, tmp_path):
    with open_store(tmp_path) as store:
        put_broker_objects(store, ["json", "comp-lz4"], named=False)
    for name, compression in (("json", Compression.ZSTD), ("comp-lz4", Compression.NONE)):
        path = MANAGED_LEDGERS / "acme" / "cold" / "persistent" / f"{name}.val"
        info = parse_stored_record(path.read_bytes()).info
        record = pack_stored_record(StoredRecord(info=info, compression=compression))
        write(client, chroot, {f"acme/cold/persistent/{name}": record})
    with open_tier(tmp_path) as tier:
        for name in ("json", "comp-lz4"):
            planned = scan(
                tier, f"acme/cold/{name}", columns=COLUMNS, records=f"{zookeeper.endpoint}{chroot}"
            )
            assert_topic_is_as_expected((row for batch in planned for row in batch.to_pylist()), name)


@pytest.mark.nightly  # as when it is killed while it is written to
def test_a_server_that_restarts_is_asked_again(start_server):
    server = start_server(ZooKeeper())
    store = ZooKeeperStore(server.endpoint, attempts=20)
    try:
        assert "quota" in store.children("/zookeeper")
        server.kill()
        server.restart()
        assert "quota" in store.children("/zookeeper")
    finally:
        store.close()


# --- logins ------------------------------------------------------------------------------------


def test_what_only_a_digest_may_read(zookeeper, client, chroot, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    (tmp_path / "digest").write_text("reader:geheim\n")
    acl = [make_digest_acl("reader", "geheim", read=True)]
    write(client, chroot, {"t/n/persistent/a": RECORD})
    client.set_acls(f"{chroot}/managed-ledgers/t/n/persistent/a", acl)
    url = f"{zookeeper.endpoint}{chroot}"
    assert (
        names(url, digest=f"reader:{SECRET}")
        == names(url, digest_file=str(tmp_path / "digest"))
        == ["persistent://t/n/a"]
    )
    with raises_without(
        WRONG, AccessDeniedError, match=r"refuses a request .*/managed-ledgers/t/n/persistent/a"
    ):
        load(url, digest=f"reader:{WRONG}")
    with pytest.raises(AccessDeniedError, match="options 'digest' and 'sasl_…'"):
        load(url)
    assert not [message for message in caplog.messages if "geheim" in message or "falsch" in message]


def test_a_login_by_sasl(zookeeper, chroot, caplog):
    caplog.set_level(logging.DEBUG)
    login = {"sasl_mechanism": "DIGEST-MD5", "sasl_username": zookeeper.user}
    assert names(f"{zookeeper.endpoint}{chroot}", **login, sasl_password=zookeeper.password) == []
    with raises_without(WRONG, AccessDeniedError, match="refuses the SASL login"):
        load(f"{zookeeper.endpoint}{chroot}", **login, sasl_password=WRONG)
    assert not [
        message for message in caplog.messages if zookeeper.password in message or "falsch" in message
    ]


def test_a_refused_login_is_told_by_a_request_after_the_connection_is_closed(zookeeper, chroot):
    closed = threading.Event()

    def when_closed(client):
        while client.client_state != KeeperState.CLOSED:
            closed.wait(0.02)
        return client.get_children_async("/")

    login = {"sasl_mechanism": "DIGEST-MD5", "sasl_username": zookeeper.user, "sasl_password": WRONG}
    with (
        raises_without(WRONG, AccessDeniedError, match="refuses the SASL login"),
        closing(ZooKeeperStore(f"{zookeeper.endpoint}{chroot}", **login)) as store,
    ):
        store._connection.ask_once(when_closed, "/")


def test_a_server_is_verified_by_its_certificate(zookeeper, client, chroot, tmp_path):
    write(client, chroot, {"t/n/persistent/a": RECORD})
    secure = f"zk://{zookeeper.host}:{zookeeper.secure_port}{chroot}"
    assert names(secure, tls="true", ca_bundle=str(zookeeper.certificate)) == ["persistent://t/n/a"]
    other, _ = make_certificate(tmp_path)
    for bundle in (None, str(other)):
        with pytest.raises(StoreTimeoutError, match=r"does not answer .* found self-signed certificate"):
            load(secure, tls=True, ca_bundle=bundle, timeout_s=2)
    with pytest.raises(StoreError):
        load(secure, timeout_s=1)


# --- what is none ------------------------------------------------------------------------------


@contextmanager
def server_that(answers):
    """A server that takes connections and does this with each."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection, suppress(OSError):
                    answers(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"zk://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.long
def test_a_server_that_is_silent_or_not_there_is_not_waited_for():
    with (
        server_that(
            lambda connection: connection.recv(1) and connection.recv(1000) and connection.recv(1)
        ) as url,
        pytest.raises(StoreTimeoutError, match=r"does not answer within 0\.5 s .*zk://127\.0\.0\.1"),
    ):
        load(url, timeout_s="0.5")
    with pytest.raises(
        StoreTimeoutError, match=r"does not answer within 0\.5 s .* found ConnectionRefusedError"
    ):
        load(url, timeout_s="0.5")
    with pytest.raises(StoreTimeoutError, match=r"does not answer within 0\.5 s"):
        load("zk://nowhere.invalid:2181", timeout_s="0.5")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x7f\xff\xff\xff" + b"x" * 1000,
        b"\xff\xff\xff\xff",
        bytes(4),
        b"\x00",
    ],
)
def test_a_server_that_speaks_another_protocol_is_an_error(answer):
    def speak(connection):
        connection.recv(1000)
        connection.sendall(answer)

    with server_that(speak) as url, pytest.raises(StoreError):
        load(url, timeout_s=0.3)


# --- options -----------------------------------------------------------------------------------


def test_hosts_of_a_url():
    assert parse_hosts("zk://a") == parse_hosts("zk:a/") == "a"
    assert parse_hosts("ZK://a:1,b-c.d:2,[::1]:3/x/y") == "a:1,b-c.d:2,[::1]:3/x/y"


@pytest.mark.parametrize(
    "url", ["zk:", "zk://", "zk:///x", "zk://a,", "zk://a b", "zk://a/../b", "zk://a//b", "zk://a/\x00"]
)
def test_other_urls_are_refused(url):
    with pytest.raises(OptionError):
        parse_hosts(url)


def test_a_user_in_a_url_is_refused_and_not_shown():
    with raises_without(SECRET, OptionError, match="must not hold a user or password"):
        load(f"zk://me:{SECRET}@a:2181")


@pytest.mark.parametrize(
    "options",
    [
        {"digest": "geheim"},
        {"digest": "a:geheim\n\x01"},
        {"digest": "a:geheim", "digest_file": "/x"},
        {"digest_file": "/not/there"},
        {"sasl_mechanism": "geheim"},
        {"sasl_mechanism": "DIGEST-MD5", "sasl_password": "geheim"},
        {"sasl_password": "geheim"},
        {"ca_bundle": "/x"},
        {"tls": "perhaps"},
        {"tls": "true", "client_key": "/x"},
        {"timeout_s": "soon"},
        {"attempts": "0"},
        {"dijest": "a:geheim"},
    ],
)
def test_options_are_checked_before_anybody_is_asked(options):
    with raises_without(SECRET, OptionError):
        load("zk://nowhere.invalid", **options)
