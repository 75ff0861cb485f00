"""The same with a cold copy on a real S3 server: a line that is refused, wrong keys."""

from dataclasses import replace

import pytest
from entries import read_through
from network.proxies import WHOLE, Proxy, Spoil
from scenes.copies import PAYLOADS, TwoCopies
from stores import new_store

from offload_core.metadata.records import ReadPriority
from offload_core.reading.read_fallbacks import Copy
from offload_core.storage.hot import FileLedgerStore
from offload_hooks.errors import AccessDeniedError, NoReadableCopyError, StoreUnavailableError

COLD_ONLY, COLD_FIRST = ReadPriority.OFFLOADED_ONLY, ReadPriority.OFFLOADED_FIRST
LAST = len(PAYLOADS) - 1
REFUSED = Spoil(refuse=True)
IMPATIENT = ["retry:attempts=2,budget_s=5"]


@pytest.fixture
def store(request, tmp_path):
    return new_store("s3", request.getfixturevalue, tmp_path)


@pytest.fixture
def copies(store, tmp_path):
    hot = FileLedgerStore(tmp_path / "hot", sync="never")
    with store.open() as tier:
        yield TwoCopies.make(hot, tier)
    hot.close()


def rest(reader, begin=0):
    return [payload for _, payload in read_through(reader, begin, LAST, 3000)]


@pytest.mark.nightly
def test_a_refused_connection_at_opening_and_in_the_middle(copies, store):
    with (
        Proxy(store.endpoint) as proxy,
        store.through(proxy.url, read_timeout_s="2").open(layers=IMPATIENT) as tier,
    ):
        record, readers = copies.record(tier), copies.readers(tier)
        reader = readers.open(record, COLD_FIRST)
        batch = reader.read(0, LAST, 3000)
        found = [bytes(each) for each in batch]
        proxy.choose = lambda _: REFUSED
        proxy.cut_all()
        found += rest(reader, batch.stop_entry_id)
        assert found == PAYLOADS
        assert reader.copy is Copy.HOT
        assert [each[:2] for each in copies.seen()] == [("cold", "unavailable")]
        assert rest(readers.open(record, COLD_FIRST)) == PAYLOADS
        assert copies.seen() == [("cold", "unavailable", None)]
        with pytest.raises(StoreUnavailableError):
            readers.open(record, COLD_ONLY)
        copies.hot.delete(copies.ledger_id)
        with pytest.raises(NoReadableCopyError, match=r"cold: .*; hot: "):
            readers.open(record, COLD_FIRST)
        proxy.choose = lambda _: WHOLE
        assert rest(readers.open(record, COLD_FIRST)) == PAYLOADS


@pytest.mark.parametrize("wrong", [{"access_key_id": "nobody"}, {"secret_access_key": "a-wrong-secret"}])
def test_wrong_keys(copies, store, wrong):
    other = replace(store, options={**store.options, **wrong})
    with other.open() as tier:
        readers = copies.readers(tier)
        assert rest(readers.open(copies.record(), COLD_FIRST)) == PAYLOADS
        assert copies.seen() == [("cold", "denied", None)]
        with pytest.raises(AccessDeniedError) as raised:
            readers.open(copies.record(), COLD_ONLY)
        assert "a-wrong-secret" not in str(raised.value)
