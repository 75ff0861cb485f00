"""The world of the pages, made in a folder: a tier, records, topics; servers for pages that need them."""

import json
import os
import shlex
import sys
import time
import zipfile
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from shutil import copy2
from uuid import uuid4

from commands import configuration_file, install_into, opened_service
from scenes.transactions import message
from service import Service
from stores import Store, new_store
from tiers import lay_out_broker_objects

from offload_core.format.messages.entry import NewMessage, pack_entry
from offload_core.metadata.records import EntryPosition
from offload_core.metadata.stores import open_metadata_store
from offload_core.reading.schema_providers import FOLDER, SchemaFiles
from offload_core.writing.managed_ledger import RolloverPolicy, TransactionalTopic, open_managed_ledger
from offload_hooks.schemas import SchemaHistory, SchemaVersion
from pulsar_offload import open_tier

EXAMPLES = Path(__file__).parents[3] / "examples"

ORDERS = "acme/cold/persistent/orders"
PAYMENTS = "acme/cold/persistent/payments"
FILTERED = "acme/n/persistent/orders"
ORPHAN = "0badc0de"
"""The prefix of the keys of objects that no record names."""
RETURNS = "00000002-0000-4000-8000-000000000002-ledger-1"

ROLLOVER = RolloverPolicy(max_entries=3, min_age_s=0)

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": "double"},
        {
            "name": "customer",
            "type": {"type": "record", "name": "Customer", "fields": [{"name": "name", "type": "string"}]},
        },
    ],
}
"""The schema of the payloads of `acme/cold/orders`."""


class World:
    """A folder with what most pages speak of, and what the others need when they ask for it.

    `fixture` gives a fixture of the tests by its name.
    """

    def __init__(self, folder, fixture):
        self.folder = folder
        self.stack = ExitStack()
        self.config = configuration_file(folder)
        self._fixture = fixture
        text = self.config.read_text().replace(f"{folder}/cold", f"{folder}/tier")
        for name in ("records.db", "hot"):  # pages make some of these names
            text = text.replace(f"{folder}/{name}", f"{folder}/kept/{name}")
        self.config.write_text(text)
        for name in ("tier", "mnt", "data", "keys", "lake", "kept", "var", "secrets"):
            (folder / name).mkdir()
        for name in ("zk", "pulsar"):
            (folder / "secrets" / name).write_text("user:secret")
        (folder / "var" / "audit.jsonl").touch()
        (folder / "schemas").symlink_to(folder / "tier" / FOLDER)
        with opened_service(self.config) as (environment, _):
            _produce_orders(environment)
            _produce_payments(environment)
            _produce_filtered(environment)
        with open_tier(self.tier_path) as tier:
            versions = (SchemaVersion(version=0, type="JSON", definition=json.dumps(ORDER)),)
            SchemaFiles(tier.store, folder=f"{FOLDER}/").save(
                "persistent://acme/cold/orders", SchemaHistory(versions=versions)
            )

        self._values = {name: self._value(name) for name in (ORDERS, PAYMENTS, FILTERED)}
        for file in (folder / "backup" / "managed-ledgers" / ORDERS, folder / "record.bin"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(self._values[ORDERS])
        (folder / "ours.toml").write_text(
            files("offload_core.maintenance.inventory").joinpath("example_prices", "aws-s3.toml").read_text()
        )

    @property
    def tier_path(self):
        """The tier that the topics were offloaded to."""
        return self.folder / "tier"

    @property
    def key(self):
        """The data object of the first ledger."""
        return next(path.name for path in self.tier_path.glob("*-ledger-0"))

    # --- names that the pages' Python takes for granted -----------------------------------------

    @cached_property
    def tier(self):
        """The tier, open."""
        return self.stack.enter_context(open_tier(self.tier_path))

    @cached_property
    def older_tier(self):
        """Another one."""
        return self.stack.enter_context(open_tier(self.folder / "lake"))

    @cached_property
    def spark(self):
        """A Spark session with settings and views of its own."""
        session = self._fixture("spark").newSession()
        self.stack.callback(_end_streams, session)
        return session

    @cached_property
    def environment(self):
        """The environment of managed ledgers."""
        environment, _ = self.stack.enter_context(opened_service(self.config))
        return environment

    @cached_property
    def hot_store(self):
        """The hot tier."""
        return self.environment.hot.store

    @cached_property
    def record(self):
        """The record of a ledger that is offloaded."""
        known = self.environment.records.read(ORDERS)
        assert known is not None
        return known.info.in_order[0]

    # --- places that stand for those that the pages name ------------------------------------------

    @cached_property
    def golden(self):
        """A tier of topics that a broker offloaded."""
        lay_out_broker_objects(self.folder / "golden")
        return self.folder / "golden"

    @cached_property
    def untidy(self):
        """The tier, with a copy of a ledger that its record does not name, some days later."""
        for path in sorted(self.tier_path.glob(f"{self.key}*")):
            copy2(path, self.tier_path / (ORPHAN + path.name[len(ORPHAN) :]))
        return self._some_days_later()

    @cached_property
    def deleted_topic(self):
        """The tier, days later, with a copy of a ledger of the topic acme/cold/returns, which has no record."""
        for path in sorted(self.tier_path.glob(f"{self.key}*")):
            name = path.name.replace(self.key, RETURNS, 1)
            data = path.read_bytes()
            if path.suffix == ".json":
                data = data.replace(b"acme/cold/persistent/orders", b"acme/cold/persistent/returns")
            (self.tier_path / name).write_bytes(data)
        return self._some_days_later()

    @cached_property
    def damaged(self):
        """The tier some days after an index was deleted."""
        for path in list(self.tier_path.glob(f"{self.key}-index*")):
            path.unlink()
        return self._some_days_later()

    def _some_days_later(self):
        for path in self.tier_path.iterdir():
            at = path.stat().st_mtime - 3 * 86400
            os.utime(path, (at, at))
        return self.tier_path

    @cached_property
    def service(self):
        """The URL of `offload serve` with these records and this hot tier."""
        folder = self.folder / "service"
        folder.mkdir()
        running = Service(folder)
        running.config.write_text(self.config.read_text())
        return self.stack.enter_context(running).url

    def store(self, name):
        """The arguments that name an empty tier on a real server."""
        return shlex.join(new_store(name, self._fixture, self.folder).command_line())

    @property
    def spark_connect(self):
        """The address of a Spark Connect server."""
        return self._fixture("spark_connect").endpoint

    @cached_property
    def zookeeper(self):
        """The address of a ZooKeeper with the record of a topic, as Pulsar stores it."""
        server = self._fixture("zookeeper")
        root = f"/pages-{uuid4()}"
        with server.connected() as client:
            for name, value in self._values.items():
                client.create(f"{root}/managed-ledgers/{name}", value, makepath=True)
        return f"{server.endpoint}{root}"

    @cached_property
    def live(self):
        """A topic of a running broker with ledgers in a bucket, in BookKeeper, and one that is written."""
        return self.stack.enter_context(_live_topic(self._fixture))

    @cached_property
    def live_settings(self):
        """The settings of a process beside that broker."""
        file = self.folder / "live.toml"
        file.write_text(
            f"""
            [metadata]
            url = "sqlite:{self.folder}/beside.db"
            options = {{ create = true }}
            [live]
            url = "{self.live.zookeeper}"
            admin_url = "{self.live.broker}"
            """
        )
        return file

    @cached_property
    def shelf_site(self):
        """A folder of packages with the example of a driver, from which this process imports."""
        site = self.folder / "site"
        install_into(site, EXAMPLES / "third_party_driver")
        sys.path.insert(0, str(site))
        self.stack.callback(_forget, str(site), "offload_shelf")
        return site

    @cached_property
    def archive(self):
        """The tier in a zip archive, for that driver."""
        assert self.shelf_site
        path = self.folder / "data" / "objects.zip"
        with zipfile.ZipFile(path, "w") as file:
            for each in self.tier_path.iterdir():
                if each.is_file():
                    file.write(each, each.name)
        return path

    def _value(self, name):
        """A topic's record as it is stored."""
        with closing(open_metadata_store(f"sqlite:{self.folder}/kept/records.db")) as store:
            found = store.get(f"/managed-ledgers/{name}")
        assert found is not None
        return bytes(found[0])

    def close(self):
        """Give back all that was opened."""
        self.stack.close()

    @property
    def settings(self):
        """The environment variables of the pages' user: a configuration, and a catalog of Iceberg tables."""
        return {
            "PULSAR_OFFLOAD_CONFIG": str(self.config),
            "PWD": str(self.folder),
            "PYICEBERG_CATALOG__PROD__URI": f"sqlite:///{self.folder}/catalog.db",
            "PYICEBERG_CATALOG__PROD__WAREHOUSE": f"file://{self.folder}/lake",
        }


def _produce_orders(environment):
    """Two sealed ledgers that are offloaded, and one that is open."""
    with open_managed_ledger(environment, ORDERS, rollover=ROLLOVER) as topic:
        for number in range(7):
            order = {"id": number, "price": 4.5 * number, "customer": {"name": "ada"}}
            messages = [NewMessage(key="ada", value=json.dumps(order).encode())]
            now_ms = time.time_ns() // 1_000_000
            topic.add_entry(
                pack_entry(messages, producer_name="shop", sequence_id=number, publish_time_ms=now_ms)
            )
        topic.roll()
        topic.offload_prefix(EntryPosition(1 << 62, 0))


def _produce_payments(environment):
    """A topic with a transaction that was aborted, and one that is open."""
    with open_managed_ledger(environment, PAYMENTS) as topic:
        followed = TransactionalTopic(environment, topic)
        dropped, held = followed.begin(), followed.begin()
        long_ago_ms = time.time_ns() // 1_000_000 - 90_000
        followed.add_entries([message(dropped), message()])
        followed.abort(dropped)
        followed.add_entries([message(held, publish_time_ms=long_ago_ms)])
        followed.snapshot()
        topic.roll()


@dataclass(frozen=True, kw_only=True)
class LiveTopic:
    """The topic's name, one of its ledgers, and the places that it is read from."""

    topic: str
    ledger_id: int
    zookeeper: str
    broker: str
    store: Store
    other_store: Store

    def other(self, option):
        """Another bucket, as commands take it by this option."""
        options = (f"{option}-option={name}={value}" for name, value in self.other_store.options.items())
        return shlex.join([option, self.other_store.url, *options])

    @property
    def url(self):
        """Of the bucket."""
        return self.store.url

    @property
    def options(self):
        """Of the bucket, as `open_tier` takes them."""
        return self.store.options

    @property
    def spark_options(self):
        """The same as Spark takes them."""
        return self.store.spark_options()

    @property
    def command_line(self):
        """The same as commands take them."""
        return shlex.join(self.store.command_line())


@contextmanager
def _live_topic(fixture):
    from live.broker import LivePulsar  # which needs Pulsar's client

    broker, zookeeper = fixture("zookeeper_broker"), fixture("zookeeper")
    with LivePulsar.connected(broker, fixture("versitygw")) as live:
        cold = live.new_cold_namespace()
        topic = cold.topic("orders")
        with closing(live.client.create_producer(topic)) as producer:
            for part in range(2):
                for number in range(5):
                    producer.send(b"order %d" % number)
                if part == 0:
                    cold.offload(topic)
            yield LiveTopic(
                topic=topic,
                ledger_id=live.admin.ledgers(topic)[-1].ledger_id,
                zookeeper=f"{zookeeper.endpoint}/pulsar",
                broker=broker.endpoint,
                store=cold.store,
                other_store=live.new_store()[1],
            )


def _produce_filtered(environment):
    """A ledger without transactions, and one in which a transaction is open."""
    with open_managed_ledger(environment, FILTERED, rollover=ROLLOVER) as topic:
        followed = TransactionalTopic(environment, topic)
        followed.add_entries([message(), message(), message()])
        followed.add_entries([message(followed.begin()), message(), message()])
        followed.snapshot()
        topic.roll()


def _forget(site, package):
    sys.path.remove(site)
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[name]


def _end_streams(session):
    for query in session.streams.active:
        query.processAllAvailable()
        query.stop()
