"""The real `pulsar-admin` sets and shows policies at the service as it does at a broker."""

import json
from contextlib import closing

import pytest
from live.clients import PulsarShell, run_main
from network.fronts import make_certificate
from servers.broker import Broker
from servers.process import http_status
from service import Service
from waiting import wait_for

from offload_core.metadata.catalogue import parse_topic
from offload_core.metadata.catalogue.admin_records import AdminRecords
from offload_core.metadata.catalogue.record_source import StoreRecords
from offload_core.metadata.records import ManagedLedgerInfo, ReadPriority
from offload_core.metadata.stores import ManagedLedgerRecords, open_metadata_store
from offload_core.reading.schema_providers import saved_in
from offload_core.storage.tier import make_schema_provider, open_store

pytestmark = [pytest.mark.server, pytest.mark.sampled(4)]

TOPIC = "persistent://acme/n/t"
RECORD = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "string"}]}
MORE = {**RECORD, "fields": [*RECORD["fields"], {"name": "b", "type": ["null", "int"], "default": None}]}
AVRO_1, AVRO_2 = (
    {"type": "AVRO", "schema": json.dumps(fields), "properties": {"k": "v"}} for fields in (RECORD, MORE)
)
STRING = {"type": "STRING", "schema": "", "properties": {}}
PLACE = "-d aws-s3 -r us-east-1 -b cold -e http://127.0.0.1:9"
LISTED = [
    "tenants list",
    "namespaces list acme",
    "namespaces topics acme/n",
    "topics list acme/n",
    "topics list-partitioned-topics acme/n",
    "topics get-partitioned-topic-metadata acme/n/p",
    "topics get-partitioned-topic-metadata acme/n/t",
    "topics get-partitioned-topic-metadata acme/n/p-partition-1",
]
SCHEMAS = [
    *(f"schemas get acme/n/{topic}" for topic in ("t", "p", "p-partition-1", "none")),
    *(f"schemas get --version {version} acme/n/t" for version in (0, 1, 7)),
    *(f"schemas get --all-version acme/n/{topic}" for topic in ("t", "none")),
]
SAME = [
    "brokers healthcheck",
    "namespaces get-offload-policies acme/n",
    "namespaces get-offload-threshold acme/n",
    "namespaces get-offload-deletion-lag acme/n",
    "namespaces get-retention acme/n",
    f"namespaces set-offload-policies acme/n {PLACE} -i KEY -s SECRET -mbs 64M -rbs 1M -oat 10M -oats 60 -oae 3h",
    "namespaces get-offload-policies acme/n",
    "namespaces get-offload-threshold acme/n",
    "namespaces get-offload-deletion-lag acme/n",
    "namespaces set-offload-threshold acme/n -s 20M -t 5m",
    "namespaces get-offload-threshold acme/n",
    "namespaces set-offload-deletion-lag acme/n -l 1d",
    "namespaces get-offload-deletion-lag acme/n",
    "namespaces clear-offload-deletion-lag acme/n",
    "namespaces get-offload-deletion-lag acme/n",
    "namespaces set-retention acme/n -s 1G -t 3h",
    "namespaces get-retention acme/n",
    "namespaces get-offload-policies acme/n",
    "namespaces remove-retention acme/n",
    "namespaces get-retention acme/n",
    f"namespaces set-offload-policies acme/n {PLACE} -orp tiered-storage-first",
    "namespaces get-offload-policies acme/n",
    f"namespaces set-offload-policies acme/n {PLACE} -orp bookkeeper-first",
    "namespaces get-offload-policies acme/n",
    "namespaces remove-offload-policies acme/n",
    "namespaces get-offload-policies acme/n",
    "namespaces get-offload-threshold acme/n",
    f"topicPolicies get-offload-policies {TOPIC}",
    f"topicPolicies set-offload-policies {TOPIC} {PLACE} -m 64000000 -rb 1000000 -t 1000 -dl 1000",
    f"topicPolicies get-offload-policies {TOPIC}",
    f"topicPolicies remove-offload-policies {TOPIC}",
    f"topicPolicies get-offload-policies {TOPIC}",
    f"topicPolicies set-retention {TOPIC} -s 1G -t 3h",
    f"topicPolicies get-retention {TOPIC}",
    f"topicPolicies get-retention {TOPIC} --applied",
    f"topicPolicies remove-retention {TOPIC}",
    f"topicPolicies get-retention {TOPIC}",
]


@pytest.fixture
def folders(tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    return ours, theirs


@pytest.mark.nightly
def test_pulsar_admin_shows_what_it_shows_of_a_broker(start_server, versitygw, folders):
    ours, theirs = folders
    broker = start_server(Broker(versitygw, topic_policies=True))
    tenant = json.dumps({"adminRoles": [], "allowedClusters": [broker.cluster]}).encode()
    assert http_status(broker.port, "PUT", "/admin/v2/tenants/acme", tenant) == 204
    assert http_status(broker.port, "PUT", "/admin/v2/namespaces/acme/n", b"{}") == 204
    assert http_status(broker.port, "PUT", "/admin/v2/persistent/acme/n/t", b"{}") == 204
    assert http_status(broker.port, "PUT", "/admin/v2/persistent/acme/n/p/partitions", b"3") == 204
    for topic, definition in (("t", AVRO_1), ("t", AVRO_2), ("p", STRING)):
        given = json.dumps(definition).encode()
        assert http_status(broker.port, "POST", f"/admin/v2/schemas/acme/n/{topic}/schema", given) == 200
    commands = [*LISTED, *SCHEMAS, *SAME]
    expected = PulsarShell(theirs, broker.endpoint).run(commands)
    settings = f'[policies]\ndriver = "local"\nextra_configurations.root = "{ours}/cold"\n'
    with Service(ours, settings) as service:
        keep_the_same(service, broker, ours / "cold")
        shown = PulsarShell(ours, service.url).run(commands)
    assert [set(text.splitlines()) for text in shown[: len(LISTED)]] == [
        set(text.splitlines()) - {"public", "pulsar"} for text in expected[: len(LISTED)]
    ]
    schemas = slice(len(LISTED), len(LISTED) + len(SCHEMAS))
    assert dict(zip(SCHEMAS, shown[schemas], strict=True)) == dict(
        zip(SCHEMAS, expected[schemas], strict=True)
    )
    assert sum('"schema' in text for text in shown[schemas]) >= 6
    expected, shown = expected[schemas.stop :], shown[schemas.stop :]
    assert any("SECRET" in text for text in expected)
    masked = [text.replace("SECRET", "********") for text in expected]  # what a broker shows in clear
    assert dict(zip(SAME, shown, strict=True)) == dict(zip(SAME, masked, strict=True))
    assert shown == masked
    check_read_priority(broker)


def check_read_priority(broker):
    """That of the topic's policies comes before that of the namespace's."""
    place = {"managedLedgerOffloadDriver": "aws-s3", "managedLedgerOffloadBucket": "cold"}
    names = {"namespaces/acme/n": "BOOKKEEPER_FIRST", "persistent/acme/n/t": "TIERED_STORAGE_FIRST"}
    with closing(AdminRecords(broker.endpoint)) as store:
        for name, priority in names.items():
            policies = json.dumps(place | {"managedLedgerOffloadedReadPriority": priority}).encode()
            assert http_status(broker.port, "POST", f"/admin/v2/{name}/offloadPolicies", policies) == 204
        records = StoreRecords(store)
        first, other = (parse_topic(f"persistent://acme/n/{name}") for name in ("t", "p-partition-0"))
        wait_for(lambda: records.read_priority(first) is ReadPriority.OFFLOADED_FIRST, 30)
        wait_for(lambda: records.read_priority(other) is ReadPriority.BOOKKEEPER_FIRST, 30)


def keep_the_same(service, broker, cold):
    """The broker's topics and their schemas, where the service looks for them."""
    with closing(open_metadata_store(service.metadata)) as store:
        records = ManagedLedgerRecords(store)
        for name in ("t", *(f"p-partition-{number}" for number in range(3))):
            records.write(f"acme/n/persistent/{name}", ManagedLedgerInfo(), None)
    provider = make_schema_provider("admin", {"url": broker.endpoint})
    with closing(provider), open_store(cold) as tier:
        for topic in ("persistent://acme/n/t", "persistent://acme/n/p"):
            history = provider.history(topic)
            assert history is not None
            saved_in(tier).save(topic, history)


def test_what_is_refused_is_told_by_its_reason(distribution, tmp_path):
    commands = [
        "namespaces set-retention acme/n -s -1 -t 1h",
        "namespaces set-offload-threshold acme/n -s -1 -t 1h",
        "namespaces get-offload-threshold acme/n",
    ]
    with Service(tmp_path) as service:
        _, refused, kept = PulsarShell(tmp_path, service.url).run(commands)
        statuses = [line["status"] for line in service.log if line.get("method") == "PUT"]
    assert statuses == [204, 412]  # of the threshold in bytes, and in seconds
    assert kept == "offloadThresholdInBytes: -1\noffloadThresholdInSeconds: -1"
    assert refused == ""  # the shell writes errors elsewhere


@pytest.mark.parametrize("kind", ["secret", "pair"])
def test_tokens_that_pulsar_makes_are_taken_over_tls(distribution, tmp_path, kind):
    tokens = "org.apache.pulsar.utils.auth.tokens.TokensCliUtils"
    secret, private, public = (tmp_path / name for name in ("secret.key", "private.key", "public.key"))
    if kind == "secret":
        run_main(tokens, ["create-secret-key", "--output", str(secret)], tmp_path)
        key, setting = ["--secret-key", secret.as_uri()], f'secret_key = "{secret.as_uri()}"'
    else:
        pair = ["--output-private-key", str(private), "--output-public-key", str(public)]
        run_main(tokens, ["create-key-pair", *pair], tmp_path)
        key, setting = ["--private-key", private.as_uri()], f'public_key = "{public}"'
    token = run_main(tokens, ["create", *key, "--subject", "admin"], tmp_path).strip()
    settings = f'[service.tokens]\n{setting}\nsuperuser_roles = ["admin"]\n'
    certificate = make_certificate(tmp_path)
    commands = ["namespaces set-offload-threshold acme/n -s 20M", "namespaces get-offload-threshold acme/n"]
    with Service(tmp_path, settings, certificate=certificate) as service:
        shell = PulsarShell(tmp_path, service.url, token=token, trusted=certificate[0])
        shown = shell.run(commands)
        assert service.ask("GET", "/admin/v2/namespaces/acme/n/offloadThreshold").status == 401
        roles = {
            line["role"]
            for line in service.log
            if line.get("status") in (200, 204) and "health" not in line["path"]
        }
        assert token not in (tmp_path / "service.log").read_text()
    assert shown == ["", "offloadThresholdInBytes: 20971520\noffloadThresholdInSeconds: -1"]
    assert roles == {"admin"}
