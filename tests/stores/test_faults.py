"""Whole jobs over a line that fails: they end with the right data or a named error, and never leave half an object."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from golden import COLUMNS, assert_topic_is_as_expected
from network.proxies import WHOLE, Proxy, Spoil
from servers.azurite import Azurite
from servers.fake_gcs import FakeGcs
from servers.minihdfs import MiniHdfs
from servers.server import Server
from servers.versitygw import Versitygw
from stores import FAR_NAMES, Store, new_store
from tiers import put_broker_objects

from offload_core.storage.tier import MemoryBudget, upload_blocks
from offload_hooks.errors import ObjectNotFoundError, OffloadError, StoreError
from pulsar_offload import scan

pytestmark = pytest.mark.sampled(24)

MIB = 1 << 20
BLOCKS = [random.Random(i).randbytes(5 * MIB) for i in range(3)] + [b"the last block is small"]
RETRY = ["retry:attempts=8,budget_s=60"]
TOPIC, OTHER_TOPIC = "jstring", "avro"

Row = dict[str, object]

SPOILS = {
    "refused": Spoil(refuse=True),
    "reset at once": Spoil(reset_after=0),
    "reset in a request": Spoil(reset_request_after=3 * MIB),
    "reset in an answer": Spoil(reset_after=400),
    "truncated answer": Spoil(truncate_after=400),
    "silent": Spoil(silent_after=400),
}
IMPATIENT = {
    "s3": {"read_timeout_s": "2"},
    "gcs": {"read_timeout_s": "2"},
    "azure": {"read_timeout_s": "2"},
    "hdfs": {"timeout_s": "5"},
}


def first(count, spoil):
    return lambda number: spoil if number < count else WHOLE


def every_second(spoil):
    return lambda number: spoil if number % 2 == 0 else WHOLE


@pytest.fixture(params=FAR_NAMES)
def far(request, tmp_path):
    """An empty tier on each store that is reached over a line."""
    return new_store(request.param, request.getfixturevalue, tmp_path)


@pytest.fixture(params=SPOILS)
def spoil(request):
    return SPOILS[request.param]


def through(store, proxy, layers):
    return store.through(proxy.url, **IMPATIENT[store.name]).open(layers=layers)


def write_job(tier, key):
    stat = upload_blocks(
        tier,
        key,
        iter(BLOCKS),
        block_bytes=5 * MIB,
        budget=MemoryBudget(20 * MIB),
        user_metadata={"role": "data"},
    )
    assert stat.size_bytes == sum(map(len, BLOCKS))
    tier.write_index(f"{key}-index", b"an index", user_metadata={"role": "index"})


def assert_whole_or_absent(store, key):
    """Looked at directly, data object and index are whole or not there; whether the data object is there."""
    whole = b"".join(BLOCKS)
    with store.open() as tier:
        there = {}
        for name, data, role in ((key, whole, "data"), (f"{key}-index", b"an index", "index")):
            try:
                stat = tier.stat(name)
            except ObjectNotFoundError:
                there[name] = False
                continue
            assert (stat.size_bytes, stat.user_metadata) == (len(data), {"role": role})
            assert bytes(tier.read_range(name, 0, len(data))) == data
            there[name] = True
        assert {found.key for found in tier.list_objects()} == {
            name for name, is_there in there.items() if is_there
        }
        return there[key]


@pytest.mark.parametrize(
    "plan", [lambda spoil: first(2, spoil), every_second], ids=["first two", "every second"]
)
def test_a_write_job_with_retries_over_a_failing_line(far, spoil, plan):
    with Proxy(far.endpoint, plan(spoil)) as proxy, through(far, proxy, RETRY) as tier:
        try:
            write_job(tier, "t/ledger-1")
            done = True
        except OffloadError:
            done = False
    assert assert_whole_or_absent(far, "t/ledger-1") or not done
    with far.open() as tier:  # whatever happened, the next attempt is whole
        write_job(tier, "t/ledger-1")
    assert assert_whole_or_absent(far, "t/ledger-1")


def test_a_write_job_over_a_dead_line_ends_with_a_named_error(far, spoil):
    if far.name == "hdfs" and spoil.reset_request_after:  # blocks go to the DataNodes, past this line
        spoil = replace(spoil, reset_request_after=400)
    with Proxy(far.endpoint, lambda _: spoil) as proxy, through(far, proxy, []) as tier:
        with pytest.raises(StoreError) as caught:
            write_job(tier, "t/ledger-1")
        assert caught.value.key in ("t/ledger-1", "t/ledger-1-index")
        assert proxy.spoiled
    assert_whole_or_absent(far, "t/ledger-1")


def test_a_scan_over_a_failing_line_reads_what_is_there(far_broker, spoil):
    with Proxy(far_broker.endpoint, every_second(spoil)) as proxy:
        reader = far_broker.through(proxy.url, **IMPATIENT[far_broker.name]).open_reader(layers=RETRY)
        with reader:
            try:
                rows = scan(reader, f"acme/cold/{TOPIC}", columns=COLUMNS).to_table()
            except OffloadError:
                return
        assert_topic_is_as_expected(rows.to_pylist(maps_as_pydicts="strict"), TOPIC)


def test_connections_cut_in_the_middle_of_an_upload(far):
    with Proxy(far.endpoint) as proxy, through(far, proxy, RETRY) as tier:

        def cutting():
            for block in BLOCKS:
                yield block
                proxy.cut_all()

        try:
            upload_blocks(tier, "k", cutting(), block_bytes=5 * MIB, user_metadata={"role": "data"})
        except OffloadError:
            assert not assert_whole_or_absent(far, "k")
        else:
            assert assert_whole_or_absent(far, "k")


# --- the server itself -------------------------------------------------------------------------------------


ON_DISK: dict[str, Callable[[], Server]] = {
    "s3": Versitygw,
    "gcs": lambda: FakeGcs(on_disk=True),
    "azure": lambda: Azurite(on_disk=True),
    "hdfs": MiniHdfs,
}


@pytest.fixture(params=FAR_NAMES)
def mortal(request, start_server, tmp_path):
    """A server of the test's own, with its data on disk, and an empty tier there."""
    server = start_server(ON_DISK[request.param]())
    store = new_store(request.param, lambda _: server, tmp_path)
    if request.param == "azure":
        server.restart()  # Azurite writes to disk every few seconds, and when it is stopped: so the container stays
    return server, store


@pytest.mark.nightly
def test_a_server_that_is_killed_in_the_middle_of_an_upload(mortal):
    server, store = mortal
    with store.open(layers=["retry:attempts=2,budget_s=5"]) as tier:

        def killing():
            yield from BLOCKS[:2]
            server.kill()
            yield from BLOCKS[2:]

        with pytest.raises(OffloadError):
            upload_blocks(tier, "k", killing(), block_bytes=5 * MIB, parts_in_flight=1)
        server.restart()
        assert not assert_whole_or_absent(store, "k")
        for stale in list(tier.list_uploads()):
            tier.abort_data(stale.upload)
        assert not list(tier.list_uploads())
        write_job(tier, "k")
    assert assert_whole_or_absent(store, "k")


def test_a_server_that_is_killed_and_comes_back_in_the_middle_of_a_scan(mortal):
    server, store = mortal
    topics = [TOPIC, OTHER_TOPIC]
    with store.open() as tier:
        put_broker_objects(tier, topics)

    def begun(reader):
        """The rows of the first batch, and those that are to come; each ledger is fetched when its turn comes."""
        planned = scan(reader, [f"acme/cold/{topic}" for topic in topics], columns=COLUMNS, task_bytes=1)
        assert len(planned.tasks) > 2
        batches = (batch.to_pylist(maps_as_pydicts="strict") for batch in planned)
        return next(batches), itertools.chain.from_iterable(batches)

    with store.open_reader(layers=["retry:attempts=20,budget_s=120"]) as reader:
        rows, coming = begun(reader)
        server.restart()  # with connections open
        rows += coming
    for topic in topics:
        full = f"persistent://acme/cold/{topic}"
        assert_topic_is_as_expected([row for row in rows if row["__topic"] == full], topic)
    with store.open_reader(layers=[]) as reader:
        _, coming = begun(reader)
        server.kill()
        with pytest.raises(StoreError):
            list(coming)


def test_a_missing_bucket_is_named(store):
    missing = {"local": "/nosuch", "hdfs": "/nosuch"}.get(store.name)
    url = store.url + missing if missing else store.url.replace("tests-", "nosuch-")
    with Store(name=store.name, url=url, endpoint=store.endpoint, options=store.options).open() as tier:
        for call in (
            lambda: list(tier.list_objects()),
            lambda: tier.stat("k"),
            lambda: tier.read_range("k", 0, 1),
        ):
            with pytest.raises(ObjectNotFoundError, match="nosuch"):
                call()
