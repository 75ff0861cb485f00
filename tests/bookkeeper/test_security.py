"""Bookies that speak TLS, and that want a login by SASL DIGEST-MD5."""

from __future__ import annotations

import time
from contextlib import closing

import pytest
from bookkeeper_cluster import BookKeeperCluster
from network.fronts import make_certificate

from offload_hooks.errors import (
    AccessDeniedError,
    DataLossError,
    OptionError,
    StoreError,
    StoreUnavailableError,
)
from offload_hooks.testing.ledger_cases.base import all_of

pytestmark = pytest.mark.sampled(3)

ENTRIES = [b"%d" % i * 10 for i in range(100)]
USER, PASSWORD = "bookkeeper-reader", "geheim"  # by default, bookies take such names only


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = make_certificate(folder)
    return certificate, key


@pytest.fixture(scope="module")
def tls_cluster(zookeeper, oracle, tmp_path_factory, certificate):
    shown, key = certificate
    settings = {
        "tlsProvider": "OpenSSL",
        "tlsProviderFactoryClass": "org.apache.bookkeeper.tls.TLSContextFactory",
        "tlsCertificatePath": shown,
        "tlsKeyStoreType": "PEM",
        "tlsKeyStore": key,
        "tlsTrustStoreType": "PEM",
        "tlsTrustStore": shown,
        "tlsClientAuthentication": "true",
    }
    cluster = BookKeeperCluster(zookeeper, oracle, settings=settings)
    yield cluster.start(tmp_path_factory.mktemp)
    cluster.stop()


@pytest.fixture(scope="module")
def tls_ledger(tls_cluster, certificate):
    shown, key = certificate
    settings = {
        "tlsProvider": "OpenSSL",
        "tlsProviderFactoryClass": "org.apache.bookkeeper.tls.TLSContextFactory",
        "tlsCertificatePath": str(shown),
        "tlsKeyStoreType": "PEM",
        "tlsKeyStore": str(key),
        "tlsTrustStoreType": "PEM",
        "tlsTrustStore": str(shown),
        "tlsClientAuthentication": "true",
    }
    return tls_cluster.make_ledger(ENTRIES, settings=settings)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("requests", [1, 256])
def test_bookies_are_read_by_tls(tls_cluster, tls_ledger, certificate, requests):
    shown, key = certificate
    options = {"ca_bundle": str(shown), "client_certificate": str(shown), "client_key": str(key)}
    with closing(tls_cluster.store(tls="true", requests_per_bookie=requests, **options)) as store:
        assert all_of(store.open(tls_ledger), 500) == ENTRIES


def test_a_certificate_that_is_not_known_is_refused(tls_cluster, tls_ledger):
    with (
        closing(tls_cluster.store(tls=True)) as store,
        pytest.raises(StoreError, match="certificate cannot be verified"),
    ):
        store.open(tls_ledger).read(0, 1)


def test_a_bookie_without_tls_says_so(bookkeeper):
    ledger_id = bookkeeper.make_ledger(ENTRIES)
    with closing(bookkeeper.store(tls=True)) as store, pytest.raises(StoreError, match="does not speak TLS"):
        store.open(ledger_id).read(0, 1)


@pytest.fixture(scope="module")
def sasl_cluster(zookeeper, oracle, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sasl")
    module = "org.apache.zookeeper.server.auth.DigestLoginModule required"
    jaas = folder / "jaas.conf"
    jaas.write_text(f'Bookie {{ {module} user_{USER}="{PASSWORD}"; }};\n')
    cluster = BookKeeperCluster(
        zookeeper,
        oracle,
        settings={
            "bookieAuthProviderFactoryClass": "org.apache.bookkeeper.sasl.SASLBookieAuthProviderFactory"
        },
        properties={"java.security.auth.login.config": jaas, "zookeeper.sasl.client": "false"},
    )
    yield cluster.start(tmp_path_factory.mktemp)
    cluster.stop()


def login(**changed):
    return {"sasl_mechanism": "DIGEST-MD5", "sasl_username": USER, "sasl_password": PASSWORD} | changed


@pytest.fixture(scope="module")
def behind_a_login(sasl_cluster):
    """A ledger's description whose bookies are those that want a login; it has no entries there."""
    ledger_id = 1
    bookies = [bookie.bookie_id for bookie in sasl_cluster.bookies[:2]]
    members = b"".join(b"\t" + each.encode() for each in bookies)
    with sasl_cluster.zookeeper.connected() as client:
        value = b"BookieMetadataFormatVersion\t1\n2\n2\n9\n0" + members + b"\n2\tCLOSED"
        client.create(f"{sasl_cluster.root}/00/0000/L0001", value, makepath=True)
    return ledger_id


@pytest.mark.nightly
def test_a_login_opens_the_bookies(sasl_cluster, behind_a_login):
    """They answer then that they do not have the entry."""
    with closing(sasl_cluster.store(**login())) as store, pytest.raises(DataLossError, match="NO_LEDGER"):
        store.open(behind_a_login).read(0, 1)


@pytest.mark.nightly
def test_a_login_opens_the_bookies_to_long_polls(sasl_cluster, behind_a_login):
    bookies = sasl_cluster.bookies[:2]
    with closing(sasl_cluster.store(**login())) as store:
        polls = store.open(behind_a_login)._bookies.polling_connection
        for bookie in bookies:
            deadline = time.monotonic() + 20
            with (
                polls(bookie.bookie_id, deadline) as connection,
                pytest.raises(StoreUnavailableError, match="402"),
            ):
                connection.wait_for_entry(behind_a_login, 5, timeout_s=0.1, deadline=deadline)


@pytest.mark.nightly
def test_without_a_login_nothing_is_read(sasl_cluster, behind_a_login):
    with closing(sasl_cluster.store()) as store, pytest.raises(AccessDeniedError, match="want a login"):
        store.open(behind_a_login).read(0, 1)


@pytest.mark.nightly
@pytest.mark.parametrize("wrong", [{"sasl_password": "falsch"}, {"sasl_username": "bookkeeper-stranger"}])
def test_a_wrong_login_is_refused(sasl_cluster, behind_a_login, wrong):
    with (
        closing(sasl_cluster.store(**login(**wrong), timeout_s=5)) as store,
        pytest.raises(StoreUnavailableError, match="does not answer a login") as caught,
    ):
        store.open(behind_a_login).read(0, 1)
    assert "refused it" in str(caught.value)
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"sasl_mechanism": "PLAIN"}, "sasl_mechanism"),
        ({"sasl_mechanism": "DIGEST-MD5"}, "sasl_username"),
        ({"sasl_username": "x"}, "sasl_mechanism"),
        ({"ca_bundle": "x"}, "without TLS"),
        ({"admin_token": "x"}, "admin_url"),
        ({"ledgers_path": "ledgers"}, "ledgers_path"),
        ({"requests_per_bookie": 0}, "requests_per_bookie"),
        ({"bytes_per_second": 0}, "bytes_per_second"),
    ],
)
def test_options_that_make_no_sense_are_named(bookkeeper, options, named):
    with pytest.raises(OptionError, match=named):
        bookkeeper.store(**options)
