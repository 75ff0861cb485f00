"""Whole jobs over a line that fails: they end with the right data or a named error, and never leave half an object."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator

import pytest
from expected import COLUMNS, assert_topic_is_as_expected
from proxy import WHOLE, Proxy, Spoil
from stores import Store, new_store

from offload_core.tier import MemoryBudget, Tier, upload_blocks
from offload_hooks.errors import ObjectNotFoundError, OffloadError, StoreError

MIB = 1 << 20
BLOCKS = [random.Random(i).randbytes(5 * MIB) for i in range(3)] + [b"the last block is small"]
RETRY = ["retry:attempts=8,budget_s=60"]
TOPIC = "jstring"

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


def first(count: int, spoil: Spoil) -> Callable[[int], Spoil]:
    return lambda number: spoil if number < count else WHOLE


def every_second(spoil: Spoil) -> Callable[[int], Spoil]:
    return lambda number: spoil if number % 2 == 0 else WHOLE


@pytest.fixture(params=["s3", "gcs", "azure", "hdfs"])
def far(request: pytest.FixtureRequest, tmp_path) -> Store:
    """An empty tier on each store that is reached over a line."""
    return new_store(request.param, request.getfixturevalue, tmp_path)


@pytest.fixture(params=SPOILS)
def spoil(request: pytest.FixtureRequest) -> Spoil:
    return SPOILS[request.param]


def through(store: Store, proxy: Proxy, layers: list[str]) -> Tier:
    return store.behind(proxy.url, **IMPATIENT[store.name]).open(layers=layers)


def write_job(tier: Tier, key: str) -> None:
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


def assert_whole_or_absent(store: Store, key: str) -> bool:
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
def test_a_write_job_with_retries_over_a_failing_line(far: Store, spoil: Spoil, plan) -> None:
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


def test_a_write_job_over_a_dead_line_ends_with_a_named_error(far: Store, spoil: Spoil) -> None:
    with Proxy(far.endpoint, lambda _: spoil) as proxy, through(far, proxy, []) as tier:
        with pytest.raises(StoreError) as caught:
            write_job(tier, "t/ledger-1")
        assert caught.value.key in ("t/ledger-1", "t/ledger-1-index")
        assert proxy.spoiled
    assert_whole_or_absent(far, "t/ledger-1")


def test_a_scan_over_a_failing_line_reads_what_is_there(broker: Store, spoil: Spoil) -> None:
    if not broker.endpoint:
        pytest.skip("a directory is reached over no line")
    with Proxy(broker.endpoint, every_second(spoil)) as proxy:
        reader = broker.behind(proxy.url, **IMPATIENT[broker.name]).open_reader(layers=RETRY)
        with reader:
            try:
                rows = reader.scan(topic=f"acme/cold/{TOPIC}", columns=COLUMNS).to_table()
            except OffloadError:
                return
        assert_topic_is_as_expected(rows.to_pylist(maps_as_pydicts="strict"), TOPIC)


def test_connections_cut_in_the_middle_of_an_upload(far: Store) -> None:
    with Proxy(far.endpoint) as proxy, through(far, proxy, RETRY) as tier:

        def cutting() -> Iterator[bytes]:
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


@pytest.fixture(params=["s3", "gcs", "azure", "hdfs"])
def mortal(request: pytest.FixtureRequest, tmp_path) -> Iterator[tuple[object, Store]]:
    """A server of the test's own, with its data on disk, and an empty tier there."""
    from servers.azurite import Azurite
    from servers.fake_gcs import FakeGcs
    from servers.minihdfs import MiniHdfs
    from servers.versitygw import Versitygw

    request.getfixturevalue(
        {"s3": "versitygw", "gcs": "fake_gcs", "azure": "azurite", "hdfs": "minihdfs"}[request.param]
    )
    made = {
        "s3": Versitygw,
        "gcs": lambda: FakeGcs(on_disk=True),
        "azure": lambda: Azurite(on_disk=True),
        "hdfs": MiniHdfs,
    }[request.param]()
    with made.start(tmp_path / "server") as server:
        yield server, new_store(request.param, lambda _: server, tmp_path)


def test_a_server_that_is_killed_in_the_middle_of_an_upload(mortal) -> None:
    server, store = mortal
    with store.open(layers=["retry:attempts=2,budget_s=5"]) as tier:

        def killing() -> Iterator[bytes]:
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


def test_a_server_that_is_killed_and_comes_back_in_the_middle_of_a_scan(mortal) -> None:
    server, store = mortal
    from tiers import put_broker_objects

    with store.open() as tier:
        put_broker_objects(tier, [TOPIC])
    with store.open_reader(layers=["retry:attempts=20,budget_s=120"]) as reader:
        scan = reader.scan(topic=f"acme/cold/{TOPIC}", columns=COLUMNS)
        server.restart()
        rows = list(
            itertools.chain.from_iterable(batch.to_pylist(maps_as_pydicts="strict") for batch in scan)
        )
        assert_topic_is_as_expected(rows, TOPIC)
        server.kill()
        with pytest.raises(StoreError):
            list(store.open_reader().scan(topic=f"acme/cold/{TOPIC}"))


def test_a_missing_bucket_is_named(store: Store) -> None:
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
