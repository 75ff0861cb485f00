"""A broker with transactions: an offloaded topic is read as Pulsar's own client reads it, one that is open included."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import s3
from oracle import Oracle
from pulsar_admin import PulsarAdmin
from servers.broker import Broker
from servers.server import StartServer
from servers.versitygw import Versitygw
from stores import Store

ENDS = {"commit": "committed", "abort": "aborted"}
COLUMNS = ("__ledgerId", "__entryId", "__batchIndex", "value")


def steps() -> Iterator[dict[str, Any]]:
    """Twelve transactions of changing fate, interleaved with one another and with plain messages; then one stays open.

    Batches hold plain and transactional messages.
    """
    draw = random.Random(12)
    running: list[str] = []
    numbers = iter(range(10_000))
    for number in range(12):
        running.append(f"t{number}")
        yield {"messages": [message(running[-1], next(numbers))]}
        for _ in range(5):
            owner = draw.choice(running)
            owners = [draw.choice([None, owner]) for _ in range(draw.choice([1, 1, 3]))]
            yield {"messages": [message(each, next(numbers)) for each in owners]}
        if len(running) > 2:
            ended = running.pop(draw.randrange(len(running)))
            yield {draw.choice(["commit", "abort"]): ended}
    yield {"commit": running.pop()}
    stays_open = running.pop()
    for _ in range(3):
        yield {"messages": [message("late", next(numbers))]}
    yield {"messages": [message(stays_open, next(numbers))]}
    yield {"messages": [message(None, next(numbers))]}
    yield {"commit": "late"}


def message(transaction: str | None, number: int) -> dict[str, Any]:
    return {"value": f"m{number}"} | ({} if transaction is None else {"transaction": transaction})


@pytest.mark.parametrize("is_over", [False, True], ids=["open", "all ended"])
def test_a_topic_is_read_as_pulsars_client_reads_it(
    versitygw: Versitygw, start_server: StartServer, oracle: Oracle, is_over: bool
) -> None:
    broker = start_server(Broker(versitygw, transactions=True))
    assert isinstance(broker, Broker)
    admin = PulsarAdmin(broker.endpoint, broker.bookie_endpoint)
    bucket = s3.new_bucket(versitygw)
    namespace = admin.make_namespace("tests/transactions", broker.s3_policies(bucket), cluster=broker.cluster)
    place = {"service_url": broker.service_url, "topic": f"persistent://{namespace}/topic"}
    planned = list(steps())
    if is_over:
        names = {
            each["transaction"]
            for step in planned
            for each in step.get("messages", ())
            if "transaction" in each
        }
        ended = {name for step in planned for name in (step.get("commit"), step.get("abort"))}
        planned += [{"commit": name} for name in sorted(names - ended)]
    ids = oracle.ask("send_transactions", steps=planned, **place)["ids"]
    ledgers = admin.offload_all(place["topic"])
    assert len(ledgers) > 2
    read = oracle.ask("read_transactions", **place)["read"]
    expected = [(row["ledger"], row["entry"], row["batch_index"], row["value"]) for row in read]
    assert 10 < len(expected) < sum(len(step.get("messages", ())) for step in planned)

    store = Store(name="s3", url=f"s3://{bucket}", options=s3.options(versitygw))
    with store.open_reader() as tier:
        for how in ({}, {"summaries": f"s3://{bucket}/summaries"}):
            scan = tier.scan(topic=place["topic"], columns=COLUMNS, task_bytes=1, **how)  # type: ignore[arg-type]
            rows = [tuple(row.values()) for row in scan.to_table().to_pylist()]
            assert [(*row[:3], row[3].decode()) for row in rows] == expected
        columns = ["__txnIdMost", "__txnIdLeast", "__txnState", "value"]
        everything = tier.scan(topic=place["topic"], columns=columns, isolation="uncommitted").to_table()
    sent = [each["value"] for step in planned for each in step.get("messages", ())]
    assert sorted(row["value"].decode() for row in everything.to_pylist()) == sorted(sent)
    fates = dict.fromkeys(ids, "open")
    for step in planned:
        fates |= {step[end]: state for end, state in ENDS.items() if end in step}
    found = {
        (row["__txnIdMost"], row["__txnIdLeast"]): row["__txnState"]
        for row in everything.to_pylist()
        if row["__txnState"] is not None
    }
    assert found == {tuple(ids[name]): fate for name, fate in fates.items()}
    assert ("open" in found.values()) != is_over
