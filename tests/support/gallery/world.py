"""The folder that sessions begin in: a tier as a broker left it, and topics of our own with all their places.

- `tier`: five topics that a broker offloaded; `schemas/avro.json` has the schemas of one.
- `offload.toml`: settings with records (`records.db`), hot tier (`hot`), audit log (`audit.jsonl`) and a tier (`cold`).
  `acme/cold/switched` has ledgers, segments, a MapFile and a hot tail; `acme/shop/orders` ledgers, hot and cold, and
  `acme/shop/payments` transactions; `acme/shop/returns` and `acme/shop/carts` have no records any more.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from itertools import count
from pathlib import Path
from random import Random

from golden import BROKER
from scenes.switched import live, switched_topic
from scenes.transactions import message
from stores import Store
from tiers import lay_out_broker_objects

from gallery.examples import OLD
from offload_core.format.messages.entry import NewMessage, pack_entry
from offload_core.metadata.records import EntryPosition
from offload_core.writing.managed_ledger import (
    Environment,
    RolloverPolicy,
    TransactionalTopic,
    open_managed_ledger,
)

_OF_BROKER = ("avro", "jkv-inline", "json", "jstring", "txn")
_MODIFIED_AT_S = 1_795_215_900
"""A minute or two after the broker's last message: 2026-11-20 23:05:00Z."""
_FULL_AT_THREE = RolloverPolicy(max_entries=3, min_age_s=0)


def make_world(folder: Path) -> dict[str, str]:
    """Make all of it, in a process that does nothing else; the environment variables of its user."""
    _draw_ids_in_order()
    lay_out_broker_objects(folder / "tier", _OF_BROKER)
    (folder / "schemas").mkdir()
    shutil.copy(BROKER / "topics" / "avro" / "schemas.json", folder / "schemas" / "avro.json")
    with switched_topic(Store(name="local", url=str(folder / "cold")), folder) as switched:
        live(switched)
        for topic in ("orders", "returns", "carts"):
            _produce(switched.environment, f"acme/shop/persistent/{topic}")
        for topic in ("returns", "carts"):
            _forget(switched.environment, f"acme/shop/persistent/{topic}")
        _produce_payments(switched.environment)
    _set_times(folder / "tier", _MODIFIED_AT_S)
    _set_times(folder / "cold", int(OLD.timestamp()))
    with (folder / "offload.toml").open("a") as settings:
        settings.write(f'[audit_log]\npath = "{folder}/audit.jsonl"\n')
    return {"PULSAR_OFFLOAD_CONFIG": f"{folder}/offload.toml", "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def _draw_ids_in_order() -> None:
    """Random ids are the same each time, and each greater than the one before, so that listings have one order."""
    numbers, drawn = count(1), Random(0)
    os.urandom = lambda length: (next(numbers) * 0x0137).to_bytes(2, "big") + drawn.randbytes(length - 2)
    secrets.randbits = drawn.getrandbits


def _set_times(tier: Path, first_s: int) -> None:
    """Give files times from then on, a second apart, in the order of their names."""
    for number, path in enumerate(sorted(path for path in tier.rglob("*") if path.is_file())):
        os.utime(path, (first_s + number, first_s + number))


def _produce(environment: Environment, name: str) -> None:
    """Two ledgers that are offloaded, one that is not, and one that is open."""
    with open_managed_ledger(environment, name, rollover=_FULL_AT_THREE) as topic:
        for number in range(10):
            if number == 6:
                topic.roll()
                topic.offload_prefix(EntryPosition(1 << 62, 0))
            order = json.dumps({"order": number, "price": 4.5 * number})
            messages = [NewMessage(key=("ada", "grace")[number % 2], value=order.encode())]
            time_ms = (_MODIFIED_AT_S + number) * 1000
            topic.add_entry(
                pack_entry(messages, producer_name="shop", sequence_id=number, publish_time_ms=time_ms)
            )


def _forget(environment: Environment, name: str) -> None:
    """Delete a topic's record alone."""
    path = f"/managed-ledgers/{name}"
    _, version = environment.records.store.get(path)
    environment.records.store.delete(path, version)


def _produce_payments(environment: Environment) -> None:
    """A transaction that was aborted, and one that is open."""
    with open_managed_ledger(environment, "acme/shop/persistent/payments") as topic:
        followed = TransactionalTopic(environment, topic)
        aborted, held = followed.begin(), followed.begin()
        followed.add_entries([message(aborted), message()])
        followed.abort(aborted)
        followed.add_entries([message(held, publish_time_ms=_MODIFIED_AT_S * 1000)])
        followed.snapshot()
        topic.roll()
