"""The store is found by its name, and is the hot tier of a topic that is offloaded."""

from pulsar_offload import (
    NewMessage,
    load_configuration,
    open_environment,
    open_managed_ledger,
    open_policies,
    open_tier,
    pack_entry,
    scan,
)

NAME = "{{ cookiecutter.name }}"


def test_a_topic_is_written_to_it_and_offloaded(tmp_path):
    configuration = load_configuration(
        None,
        {
            "metadata": {"url": f"sqlite:{tmp_path}/records.db", "options": {"create": True}},
            "hot_tier": {"store": NAME, "options": {"path": f"{tmp_path}/ledgers.db"}},
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
    with open_tier(tmp_path / "cold") as tier:
        table = scan(tier, "acme/cold/orders", columns=["value"]).to_table()
    assert table["value"].to_pylist() == [b"an order", b"another"]
