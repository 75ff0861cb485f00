"""The compose file of `deploy/compose`: its service starts by its settings, and offloads a real broker's topic."""

import shlex

import pytest
import yaml
from image import DOCKERFILE, ROOT, arguments
from live.broker import LivePulsar
from servers import install
from service import KEY, Service, bearer
from waiting import wait_for

from offload_core.writing.configuration import load_configuration

FOLDER = ROOT / "deploy" / "compose"
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]
OURS = SERVICES["offload"]
SETTINGS = (FOLDER / "offload.toml").read_text()
MESSAGES = 45  # of which the broker seals ledgers of 20


def test_names_in_the_file_are_of_what_is_in_it():
    for service in SERVICES.values():
        for other, wanted in service.get("depends_on", {}).items():
            assert (
                wanted["condition"] != "service_healthy"
                or "healthcheck" in SERVICES[other]
                or other == "offload"
            )
        named = {mount.partition(":")[0] for mount in service.get("volumes", ()) if not mount.startswith(".")}
        assert named <= set(COMPOSE["volumes"])
    build = OURS["build"]
    assert (FOLDER / build["context"]).resolve() == ROOT
    assert ROOT / build["dockerfile"] == DOCKERFILE
    assert SERVICES["pulsar"]["image"].endswith(f":{install.PULSAR}")
    assert SERVICES["s3"]["image"].endswith(f":v{install.VERSITYGW}")
    published = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert all(port.startswith("127.0.0.1:") for port in published), "its keys are in this file"


def test_the_broker_and_the_service_know_the_same_tier(monkeypatch):
    for name, value in OURS["environment"].items():
        monkeypatch.setenv(name, value)
    policies = load_configuration(FOLDER / "offload.toml").policies.model_dump()
    broker, s3 = SERVICES["pulsar"]["environment"], SERVICES["s3"]["environment"]
    assert policies["driver"] == broker["PULSAR_PREFIX_managedLedgerOffloadDriver"]
    assert policies["bucket"] == broker["PULSAR_PREFIX_s3ManagedLedgerOffloadBucket"]
    assert policies["region"] == broker["PULSAR_PREFIX_s3ManagedLedgerOffloadRegion"]
    assert policies["service_endpoint"] == broker["PULSAR_PREFIX_s3ManagedLedgerOffloadServiceEndpoint"]
    keys = (s3["ROOT_ACCESS_KEY"], s3["ROOT_SECRET_KEY"])
    assert keys == (broker["AWS_ACCESS_KEY_ID"], broker["AWS_SECRET_ACCESS_KEY"])
    assert keys == tuple(OURS["environment"].values())
    assert f"mkdir -p /data/{policies['bucket']} " in SERVICES["s3"]["entrypoint"][-1]
    started = shlex.split(SERVICES["pulsar"]["command"][-1])
    assert started[started.index("--metadata-url") + 1].replace("zk:", "zk://") in SETTINGS


@pytest.mark.nightly
def test_the_service_offloads_the_topics_of_a_broker(zookeeper_broker, versitygw, tmp_path):
    env = OURS["environment"] | {
        "PULSAR_OFFLOAD_SERVICE__HOST": arguments(1)["PULSAR_OFFLOAD_SERVICE__HOST"],
        "PULSAR_OFFLOAD_POLICIES__S3_CREDENTIAL_ID": versitygw.root.access_key,
        "PULSAR_OFFLOAD_POLICIES__S3_CREDENTIAL_SECRET": versitygw.root.secret_key,
    }
    (tmp_path / "token.key").write_bytes(KEY)
    command, flag, place = OURS["command"]
    assert (flag, f"./offload.toml:{place}:ro" in OURS["volumes"]) == ("--config", True)
    service = Service(tmp_path, command=(command,), within=("env", *(f"{key}={env[key]}" for key in env)))
    settings = SETTINGS
    for there, here in (
        ("zk://zookeeper:2181/pulsar", zookeeper_broker.metadata_url.replace("zk:", "zk://")),
        ("http://pulsar:8080", zookeeper_broker.endpoint),
        ("http://s3:7070", versitygw.endpoint),
        ("/var/lib/offload", str(tmp_path)),
        ("/etc/offload", str(tmp_path)),
        ("interval_s = 10", "interval_s = 1"),
    ):
        assert there in settings
        settings = settings.replace(there, here)
    service.config.write_text(settings)
    with LivePulsar.connected(zookeeper_broker, versitygw) as live, service:
        bucket, _ = live.new_store()
        topic = f"persistent://{live.new_namespace(zookeeper_broker.s3_policies(bucket))}/orders"
        producer = live.client.create_producer(topic, batching_enabled=False)
        for number in range(MESSAGES):
            producer.send(b"%d" % number)
        producer.close()
        wait_for(lambda: any(each.offloaded for each in live.admin.ledgers(topic)))
        assert service.ask("GET", "/readyz").status == 200
        metrics = service.ask("GET", "/metrics", headers=bearer("admin")).text
        assert f'topic="{topic}"' in metrics
