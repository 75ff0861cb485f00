"""What offloads count, by the names, labels and units of a broker's own metrics."""

from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from offload_core.interfaces.service.offloader_metrics import OffloaderMetrics

TOPIC = "persistent://acme/n/orders"
PLACE = {"namespace": "acme/n", "topic": TOPIC}
DOCS = Path(__file__).parents[2] / "docs" / "service.md"

# The families at /metrics/ of a broker 4.0.8 after an offload.
BROKERS = {
    "brk_ledgeroffloader_delete_offload_ops": "counter",
    "brk_ledgeroffloader_offload_error": "counter",
    "brk_ledgeroffloader_offload_rate": "gauge",
    "brk_ledgeroffloader_read_bytes": "counter",
    "brk_ledgeroffloader_read_ledger_latency": "summary",
    "brk_ledgeroffloader_read_offload_data_latency": "summary",
    "brk_ledgeroffloader_read_offload_error": "counter",
    "brk_ledgeroffloader_read_offload_index_latency": "summary",
    "brk_ledgeroffloader_read_offload_rate": "gauge",
    "brk_ledgeroffloader_write_storage_error": "counter",
}


def samples(registry):
    """The values by their names and labels, and the families, as they are scraped."""
    text = generate_latest(registry).decode()
    families = [f for f in text_string_to_metric_families(text) if f.name.startswith("brk_")]
    families = [family for family in families if not family.name.endswith("_created")]
    assert {family.name: family.type for family in families} == BROKERS
    found = {}
    for family in families:
        for sample in family.samples:
            if not sample.name.endswith("_created"):
                status = sample.labels.pop("status", "")
                assert sample.labels == PLACE
                found[sample.name.removeprefix("brk_ledgeroffloader_") + status] = sample.value
    return found


def test_everything_is_counted_as_a_broker_does():
    registry, now = CollectorRegistry(), [100.0]
    stats = OffloaderMetrics(registry, lambda: now[0])
    assert samples(registry) == {}
    stats.count_offload_error(TOPIC)
    stats.count_write_error(TOPIC)
    stats.count_read_error(TOPIC)
    stats.count_offloaded(TOPIC, 600)
    stats.count_offloaded(TOPIC, 600)
    stats.count_read(TOPIC, 60)
    stats.time_ledger_read(TOPIC, 0.001)
    stats.time_index_read(TOPIC, 0.002)
    stats.time_data_read(TOPIC, 0.003)
    stats.time_data_read(TOPIC, 0.004)
    stats.count_deletion(TOPIC, succeeded=True)
    stats.count_deletion(TOPIC, succeeded=False)
    counted = {
        "offload_error_total": 1,
        "write_storage_error_total": 1,
        "read_offload_error_total": 1,
        "read_bytes_total": 60,
        "offload_rate": 20,
        "read_offload_rate": 1,
        "read_ledger_latency_count": 1,
        "read_ledger_latency_sum": 1000,
        "read_offload_index_latency_count": 1,
        "read_offload_index_latency_sum": 2000,
        "read_offload_data_latency_count": 2,
        "read_offload_data_latency_sum": 7000,
        "delete_offload_ops_totalsucceed": 1,
        "delete_offload_ops_totalfailed": 1,
    }
    assert samples(registry) == counted
    now[0] += 30
    stats.count_offloaded(TOPIC, 600)
    assert samples(registry)["offload_rate"] == 30
    now[0] += 40
    assert samples(registry)["offload_rate"] == 10
    now[0] += 60
    assert samples(registry) == counted | {"offload_rate": 0, "read_offload_rate": 0}


def test_topics_that_are_gone_disappear():
    registry = CollectorRegistry()
    stats = OffloaderMetrics(registry)
    gone = "persistent://acme/n/gone"
    for topic in (TOPIC, gone):
        for count in (stats.count_offload_error, stats.count_write_error, stats.count_read_error):
            count(topic)
        for take in (stats.count_offloaded, stats.count_read):
            take(topic, 60)
        for take in (stats.time_ledger_read, stats.time_index_read, stats.time_data_read):
            take(topic, 1)
        for succeeded in (True, False):
            stats.count_deletion(topic, succeeded=succeeded)
    stats.keep(iter([TOPIC, "persistent://acme/n/quiet"]))
    assert len(samples(registry)) == 14
    stats.keep([])
    assert samples(registry) == {}


def test_fallbacks_of_reads_have_a_name_of_our_own():
    registry = CollectorRegistry()
    stats = OffloaderMetrics(registry)
    stats.count_fallback("cold", "missing")
    labels = {"copy": "cold", "reason": "missing"}
    assert registry.get_sample_value("pulsar_offload_read_fallbacks_total", labels) == 1
    assert "`pulsar_offload_read_fallbacks_total`" in DOCS.read_text()
