"""The filter is found by its name, and a topic is offloaded through it."""

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


def test_a_topic_is_offloaded_through_it(tmp_path):
    configuration = load_configuration(
        None,
        {
            "metadata": {"url": f"sqlite:{tmp_path}/records.db", "options": {"create": True}},
            "hot_tier": {"options": {"path": f"{tmp_path}/hot"}},
            "policies": {
                "driver": "local",
                "extra_configurations": {"root": f"{tmp_path}/cold"},
                "filter": "{{ cookiecutter.name }}",
                "filter_options": {"producer": "monitor"},
            },
        },
    )
    with (
        open_policies(configuration) as (metadata, policies),
        open_environment(configuration, metadata, policies) as environment,
        open_managed_ledger(environment, "acme/cold/persistent/orders") as topic,
    ):
        for i, producer in enumerate(["shop", "monitor", "shop", "monitor"]):
            message = NewMessage(value=f"{producer} {i}".encode())
            entry = pack_entry([message], producer_name=producer, sequence_id=i, publish_time_ms=i + 1)
            topic.add_entry(entry)
        topic.roll()
        last = topic.last_position
        topic.offload_prefix(last._replace(ledger_id=last.ledger_id + 1))
    with open_tier(tmp_path / "cold") as tier:
        table = scan(tier, "acme/cold/orders", columns=["value"]).to_table()
    assert table["value"].to_pylist() == [b"shop 0", b"shop 2"]
