"""The provider is found by its name, and a scan has typed columns by it."""

from uuid import uuid4

from offload_hooks.testing import MemoryLedgerStore
from pulsar_offload import LedgerOffloader, NewMessage, open_tier, pack_entry, scan

NAME = "{{ cookiecutter.name }}"
ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
PAYLOADS = [b"\x02", b"\x04", b"\x53"]  # the longs 1, 2, -42 in AVRO


def test_a_scan_has_typed_columns(tmp_path):
    (tmp_path / "acme%2Fcold%2Forders.avsc").write_text(ORDER)
    messages = [NewMessage(value=payload) for payload in PAYLOADS]
    hot = MemoryLedgerStore()
    writer = hot.create({})
    writer.append(pack_entry(messages, producer_name="shop", sequence_id=0, publish_time_ms=1))
    writer.close()
    with open_tier(tmp_path / "cold") as tier:
        topic = {"managedledgername": "acme/cold/persistent/orders"}
        LedgerOffloader(tier.store).offload(hot.open(writer.ledger_id), uuid4(), topic)
        schemas = f"{NAME}:directory={tmp_path}"
        table = scan(tier, "acme/cold/orders", schemas=schemas, columns=["id"]).to_table()
    assert table.to_pydict() == {"id": [1, 2, -42]}
