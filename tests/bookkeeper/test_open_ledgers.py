"""Open ledgers: as far as bookies confirm, or exactly as far as the broker says; never less than before."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from network.bookie_proxy import unchanged

from offload_core.format.codec.protobuf_records import unknown_fields
from offload_hooks.errors import MetadataError, RangeError
from offload_hooks.testing.ledger_cases.base import all_of
from offload_proto.bookie_pb2 import Request

ENSEMBLES = {"batches": {"ensemble": 2, "write_quorum": 2}, "striped": {"ensemble": 3, "write_quorum": 2}}


def append_one_by_one(bookkeeper, ledger_id, entries):
    for entry in entries:
        bookkeeper.append(ledger_id, [entry])


@pytest.mark.parametrize("ensemble", ENSEMBLES.values(), ids=ENSEMBLES)
def test_an_open_ledger_is_read_up_to_the_entry_before_its_last(bookkeeper, store, ensemble):
    """Each entry confirms those that were acknowledged before it was sent."""
    ledger_id = bookkeeper.create(**ensemble)
    reader = store.open(ledger_id)
    assert (reader.status().entry_count, reader.status().sealed) == (0, False)
    written = [b"%d" % i * i for i in range(10)]
    append_one_by_one(bookkeeper, ledger_id, written)
    status = reader.status()
    assert (status.entry_count, status.size_bytes) == (9, sum(map(len, written[:9])))
    assert all_of(reader) == written[:9]
    with pytest.raises(RangeError):
        reader.read(9, 9)
    bookkeeper.append(ledger_id, [b"another"])
    assert bytes(reader.read(9, 9)[0]) == written[9]
    bookkeeper.close_ledger(ledger_id)
    assert reader.status().sealed
    assert all_of(reader) == [*written, b"another"]


def test_entries_that_were_sent_at_once_are_not_confirmed_yet(bookkeeper, store):
    ledger_id = bookkeeper.create()
    bookkeeper.append(ledger_id, [b"x"] * 50)
    assert store.open(ledger_id).status().entry_count < 50
    bookkeeper.append(ledger_id, [b"y"])
    assert store.open(ledger_id).status().entry_count == 50


def test_what_was_told_once_stays_when_the_newest_bookie_is_gone(bookkeeper, store):
    ledger_id = bookkeeper.create(ensemble=3, write_quorum=2)
    append_one_by_one(bookkeeper, ledger_id, [b"x"] * 20)
    reader = store.open(ledger_id)
    before = reader.status().entry_count
    assert before == 19
    bookkeeper.bookies[1].stop()
    try:
        assert reader.status().entry_count >= before
        assert store.open(ledger_id).status().entry_count >= before - 1
    finally:
        bookkeeper.bookies[1].restart()


# --- waiting for entries -----------------------------------------------------------------------


def test_an_entry_that_is_confirmed_ends_the_wait(bookkeeper, store):
    """The second entry confirms the first; the wait ends long before its time."""
    ledger_id = bookkeeper.create()
    reader = store.open(ledger_id)
    begun = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(reader.wait_past, 0, 60)
        append_one_by_one(bookkeeper, ledger_id, [b"a", b"b"])
        assert waiting.result().entry_count == 1
    assert time.monotonic() - begun < 50


def test_a_wait_is_over_after_its_time(bookkeeper, store):
    ledger_id = bookkeeper.create()
    append_one_by_one(bookkeeper, ledger_id, [b"a", b"b"])
    reader = store.open(ledger_id)
    assert reader.wait_past(0, 60).entry_count == 1
    assert reader.wait_past(1, 0.2).entry_count == 1


def test_nothing_is_waited_for_in_a_sealed_ledger(bookkeeper, store):
    reader = store.open(bookkeeper.make_ledger([b"a"]))
    assert reader.wait_past(1, 60).sealed


def test_a_wait_sends_no_key_and_no_flag_that_fences(bookkeeper, open_store):
    ledger_id = bookkeeper.create()
    append_one_by_one(bookkeeper, ledger_id, [b"a", b"b"])
    with bookkeeper.behind_proxies(unchanged, unchanged) as (root, proxies):
        open_store(ledgers_path=root).open(ledger_id).wait_past(1, 0.2)
        frames = [frame for proxy in proxies for frame in proxy.requests if frame[4] != 2]
    assert frames
    for frame in frames:
        request = Request.FromString(frame[4:])
        assert request.header.operation == 1
        assert (request.readRequest.entryId, request.readRequest.flag) == (-1, 2)
        assert unknown_fields(request.readRequest) == b""
    bookkeeper.append(ledger_id, [b"c"])
    bookkeeper.close_ledger(ledger_id)


@pytest.fixture
def admin_rest():
    """An admin REST that says what is in `answer`; its URL, `answer` and the paths that were asked."""
    state = {"answer": {}, "paths": []}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            state["paths"].append(self.path)
            body = json.dumps(state["answer"]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    state["url"] = f"http://127.0.0.1:{server.server_port}"
    yield state
    server.shutdown()
    server.server_close()


TOPIC = {"pulsar/managed-ledger": "acme/live/persistent/a%2Fb", "application": "pulsar"}


def test_a_broker_knows_the_last_entry_exactly(bookkeeper, open_store, admin_rest):
    ledger_id = bookkeeper.create(custom=TOPIC)
    bookkeeper.append(ledger_id, [b"x"] * 50)
    admin_rest["answer"] = {"lastConfirmedEntry": f"{ledger_id}:49"}
    reader = open_store(admin_url=admin_rest["url"]).open(ledger_id)
    assert (reader.status().entry_count, reader.status().size_bytes) == (50, 50)
    assert all_of(reader) == [b"x"] * 50
    assert admin_rest["paths"][0] == "/admin/v2/persistent/acme/live/a%2Fb/internalStats"


def test_a_broker_that_writes_another_ledger_by_now_is_not_believed(bookkeeper, open_store, admin_rest):
    ledger_id = bookkeeper.create(custom=TOPIC)
    append_one_by_one(bookkeeper, ledger_id, [b"x"] * 5)
    admin_rest["answer"] = {"lastConfirmedEntry": f"{ledger_id + 1}:900"}
    assert open_store(admin_url=admin_rest["url"]).open(ledger_id).status().entry_count == 4


@pytest.mark.parametrize("answer", [{}, {"lastConfirmedEntry": "7"}, {"lastConfirmedEntry": None}, [1]])
def test_other_answers_of_a_broker_are_refused(bookkeeper, open_store, admin_rest, answer):
    ledger_id = bookkeeper.create(custom=TOPIC)
    admin_rest["answer"] = answer
    with pytest.raises(MetadataError, match="no last confirmed entry"):
        open_store(admin_url=admin_rest["url"]).open(ledger_id).status()


def test_a_ledger_of_no_topic_is_not_asked_about(bookkeeper, open_store, admin_rest):
    ledger_id = bookkeeper.create()
    append_one_by_one(bookkeeper, ledger_id, [b"x"] * 3)
    assert open_store(admin_url=admin_rest["url"]).open(ledger_id).status().entry_count == 2
    assert admin_rest["paths"] == []
