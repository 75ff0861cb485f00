"""What `offload relocate --mapping` says is to be changed in a live Pulsar's records, done as its operator does it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from kazoo.client import KazooClient

from offload_core.metadata import DriverMetadata, pack_stored_record, parse_stored_record


def change_records(client: KazooClient, root: str, changes: Iterable[Mapping[str, Any]]) -> None:
    """Make these `changes` of the command's report, in the ZooKeeper with the cluster's root.

    Their topics are unloaded. Everything else in the records stays, also how they are compressed.
    """
    for change in changes:
        path = root + change["path"]
        value, stat = client.get(path)
        stored = parse_stored_record(value)
        ledger = stored.info.ledger(change["ledger"])
        assert ledger is not None
        assert ledger.context is not None
        assert [str(ledger.context.uuid)] == change["old_uuids"]
        driver = DriverMetadata(name=change["driver"], properties=tuple(change["properties"].items()))
        context = replace(ledger.context, uuid=UUID(change["new_uuid"]), driver=driver)
        info = stored.info.with_ledger(replace(ledger, context=context))
        client.set(path, pack_stored_record(replace(stored, info=info)), version=stat.version)
