"""The store is found by the scheme of its URLs, and keeps the records of a topic."""

from contextlib import closing

from pulsar_offload import (
    ManagedLedgerRecords,
    NewMessage,
    load_configuration,
    open_environment,
    open_managed_ledger,
    open_metadata_store,
    open_policies,
    open_tier,
    pack_entry,
    scan,
)

NAME = "{{ cookiecutter.name }}"


def test_a_topic_is_kept_by_its_records(tmp_path):
    url = f"{NAME}:{tmp_path}/records.db"
    configuration = load_configuration(
        None,
        {
            "metadata": {"url": url},
            "hot_tier": {"options": {"path": f"{tmp_path}/hot"}},
            "policies": {"driver": "local", "extra_configurations": {"root": f"{tmp_path}/cold"}},
        },
    )
    with (
        open_policies(configuration) as (metadata, policies),
        open_environment(configuration, metadata, policies) as environment,
        open_managed_ledger(environment, "acme/cold/persistent/orders") as topic,
    ):
        messages = [NewMessage(value=b"an order"), NewMessage(value=b"another")]
        topic.add_entry(pack_entry(messages, producer_name="shop", sequence_id=0, publish_time_ms=1))
        topic.roll()
        last = topic.last_position
        topic.offload_prefix(last._replace(ledger_id=last.ledger_id + 1))
    with closing(open_metadata_store(url)) as store:
        records = ManagedLedgerRecords(store)
        assert list(records.names(["acme/cold"])) == ["acme/cold/persistent/orders"]
    with open_tier(tmp_path / "cold") as tier:
        table = scan(tier, "acme/cold/orders", records=url, columns=["value"]).to_table()
    assert table["value"].to_pylist() == [b"an order", b"another"]
