"""Pulsar's Java client in the oracle's JVM: messages that it sends, and what its readers get, as our rows are, too."""

from __future__ import annotations

import base64
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulsar
from live.broker import LivePulsar
from oracle import Oracle
from servers import install

from offload_proto.messages_pb2 import MessageIdData
from pulsar_offload import TierReader, scan

READ_COLUMNS = {
    "id": "__messageId",
    "value": "value",
    "key": "__key",
    "ordering_key": "__orderingKey",
    "properties": "__messageProperties",
    "published_ms": "__publishTime",
    "event_ms": "__eventTime",
    "producer": "__producerName",
    "sequence_id": "__sequenceId",
    "replicated_from": "__replicatedFrom",
}
"""The fields of a message from `JavaClient.consume`, and the columns that must equal them."""

Read = dict[str, Any]

_BYTES = ("id", "value", "key", "ordering_key")


@dataclass(frozen=True, slots=True)
class JavaClient:
    """The client of the broker at `service_url`."""

    oracle: Oracle
    service_url: str

    def produce(
        self,
        topic: str,
        messages: Iterable[Mapping[str, Any]],
        *,
        keys: Path | None = None,
        encrypt_for: Sequence[str] = (),
        **options: Any,
    ) -> None:
        """Send messages (`value`, `ordering_key`: bytes) by one producer.

        `options` are `batch`, `chunk_bytes` and `compression`. With `encrypt_for` the folder `keys` has `NAME.pub`.
        """
        texts = [{name: as_text(value) for name, value in message.items()} for message in messages]
        if encrypt_for:
            options |= {"encrypt_for": list(encrypt_for), "key_folder": str(keys)}
        self.oracle.ask("produce", service_url=self.service_url, topic=topic, messages=texts, **options)

    def consume(
        self, topic: str, *, until: bytes | None = None, keys: Path | None = None, **options: Any
    ) -> list[Read]:
        """Read from the first message to the one whose value is `until`, or to the last.

        Ids are without the batch size 0 that this client gives a message outside of batches, and the others do not.
        `options` are `crypto_failure_action` and `compacted`. The folder `keys` has `NAME.pem` of every name.
        """
        if until is not None:
            options["until"] = as_text(until)
        if keys is not None:
            options["key_folder"] = str(keys)
        answer = self.oracle.ask("consume", service_url=self.service_url, topic=topic, **options)
        return [_as_read(message) for message in answer["read"]]


def rows_as_java_reads(tier: TierReader, topic: str, **options: Any) -> list[Read]:
    """All messages of a topic by our scan, in the form of `JavaClient.consume`."""
    columns = list(READ_COLUMNS.values())
    table = scan(tier, topic, columns=columns, **options).to_table()
    rows = table.to_pylist(maps_as_pydicts="strict")
    return [{name: _as_number(row[column]) for name, column in READ_COLUMNS.items()} for row in rows]


def as_text(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _as_read(message: Mapping[str, Any]) -> Read:
    read = {name: message[name] for name in READ_COLUMNS}
    for name in _BYTES:
        read[name] = None if message[name] is None else base64.b64decode(message[name])
    message_id = MessageIdData.FromString(read["id"])
    if not message_id.batch_size:
        message_id.ClearField("batch_size")
    if message_id.HasField("first_chunk_message_id"):
        message_id.first_chunk_message_id.ClearField("batch_size")
    return read | {"id": message_id.SerializeToString(), "event_ms": message["event_ms"] or None}


def _as_number(value: Any) -> Any:
    return round(value.timestamp() * 1000) if hasattr(value, "timestamp") else value


# --- What Pulsar's clients get of a topic in every way that there is, as a value: the same again after a rewriting.


RECEIVED_WITHIN_MS = 60_000

KINDS = {
    "exclusive": pulsar.ConsumerType.Exclusive,
    "shared": pulsar.ConsumerType.Shared,
    "failover": pulsar.ConsumerType.Failover,
    "key-shared": pulsar.ConsumerType.KeyShared,
}
"""Kinds of subscriptions."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalPulsar(LivePulsar):
    """A broker that takes transactions, with the Java client as well."""

    oracle: Oracle

    def send_steps(self, topic: str, steps: Sequence[Row]) -> dict[str, tuple[int, int]]:
        """Send in transactions, as of `Transactions.java`; the ids by name."""
        answer = self.oracle.ask(
            "send_transactions", service_url=self.broker.service_url, topic=topic, steps=list(steps)
        )
        ids: dict[str, list[int]] = answer["ids"]
        return {name: (most, least) for name, (most, least) in ids.items()}

    def read(self, topic: str) -> list[Row]:
        """Read all messages by the Java client's reader."""
        answer = self.oracle.ask("read_transactions", service_url=self.broker.service_url, topic=topic)
        return answer["read"]

    def consume(self, topic: str, kind: str, name: str, count: int) -> list[Row]:
        """Consume `count` messages by a new subscription of this kind, from the first on; acknowledge all."""
        with self._subscribed(topic, name, consumer_type=KINDS[kind]) as consumer:
            received = [consumer.receive(RECEIVED_WITHIN_MS) for _ in range(count)]
            for message in received:
                consumer.acknowledge(message)
        return [_row(message) for message in received]

    def sought(self, topic: str, name: str, times_ms: Sequence[int]) -> list[Row]:
        """The first message after each seek to a time."""
        found = []
        with self._subscribed(topic, name) as consumer:
            for time_ms in times_ms:
                consumer.seek(time_ms)
                found.append(_row(consumer.receive(RECEIVED_WITHIN_MS)))
        return found

    def _subscribed(self, topic: str, name: str, **options: Any) -> AbstractContextManager[pulsar.Consumer]:
        first = pulsar.InitialPosition.Earliest
        return closing(self.client.subscribe(topic, name, initial_position=first, **options))

    def views(self, topic: str, subscriptions: str) -> dict[str, Any]:
        """All that is got of a topic: by a reader, by seeks, and by subscriptions of each kind, acknowledged.

        Names of subscriptions begin with `subscriptions`.
        """
        read = self.read(topic)
        consumed = {kind: self.consume(topic, kind, f"{subscriptions}-{kind}", len(read)) for kind in KINDS}
        times = sorted({row["published_ms"] for row in consumed["exclusive"]})
        places = (0, 1, len(times) // 3, len(times) // 2, len(times) - 1)
        sought = [times[0] - 10_000, *(times[place] for place in places)]
        return {
            "read": read,
            **consumed,
            "sought": self.sought(topic, f"{subscriptions}-seek", sought),
            "found": [self.admin.message_id_at(topic, time_ms) for time_ms in sought],
        }


def _row(message: pulsar.Message) -> Row:
    message_id = message.message_id()
    return {
        "ledger": message_id.ledger_id(),
        "entry": message_id.entry_id(),
        "batch_index": message_id.batch_index(),
        "value": message.data().decode(),
        "published_ms": message.publish_timestamp(),
    }


# --- The real `pulsar-admin`: several commands in one JVM, by the distribution's shell, and what each shows.


_COMMAND = re.compile(r"^\[\d+/\d+\] Executing (.+)$", re.MULTILINE)
_LOGGED = re.compile(r"^\d{4}-\d\d-\d\d .*\n", re.MULTILINE)


class PulsarShell:
    """`pulsar-admin` of the distribution that tests run a broker of.

    Args:
        folder: where its settings are written.
        token: what it shows to the service.
        trusted: the certificate that a service with TLS is verified by.
    """

    def __init__(
        self, folder: Path, url: str, *, token: str | None = None, trusted: Path | None = None
    ) -> None:
        self._folder = folder
        settings = {"webServiceUrl": url, "brokerServiceUrl": "pulsar://127.0.0.1:1"}
        if token is not None:
            settings["authPlugin"] = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
            settings["authParams"] = f"token:{token}"
        if trusted is not None:
            settings["tlsTrustCertsFilePath"] = str(trusted)
        self._conf = folder / "client.conf"
        self._conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def run(self, commands: Sequence[str]) -> list[str]:
        """The output of each of these commands of `pulsar-admin`, errors included."""
        script = self._folder / "commands.txt"
        script.write_text("".join(f"admin {command}\n" for command in commands))
        arguments = ["-c", str(self._conf), "-f", str(script), "-np"]
        shown = run_main("org.apache.pulsar.shell.PulsarShell", arguments, self._folder)
        parts = _COMMAND.split(shown)[1:]
        assert parts[::2] == [f"admin {command}" for command in commands], shown
        outputs = [_LOGGED.sub("", text).strip() for text in parts[1::2]]
        return [*outputs[:-1], outputs[-1].removesuffix("Goodbye!").strip()]


def run_main(main: str, arguments: Sequence[str], home: Path) -> str:
    """The output of a class of the distribution with a `main`."""
    java, installed = install.broker()
    quiet = Path(__file__).parents[1] / "servers" / "pulsar" / "log4j2.properties"
    options = ["-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={quiet}", f"-Duser.home={home}"]
    done = subprocess.run(
        [str(java), *options, "-cp", f"{installed}/lib/*", main, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
