"""What a tenant's role may have the service do: no credentials go to places of its choice, and no files are its own."""

import json
from contextlib import closing

import pytest
from commands import opened_topic
from network.fronts import Answer, Front
from service import BUCKET, DRIVER, ENDPOINT, EXTRA, TenantService, bearer

from offload_core.metadata.stores import open_metadata_store

OPERATORS = "OPERATORS-TOKEN-ya29"


@pytest.fixture(scope="module")
def thief():
    """A server of a tenant's choice, which keeps what it is asked."""
    with Front(rule=lambda _: Answer(status=404)) as front:
        yield front


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where tenants may store."""
    found = tmp_path_factory.mktemp("tenants")
    (found / "acme").mkdir()
    return found


@pytest.fixture(scope="module")
def service(tmp_path_factory, folder, thief):
    settings = f"""
[[service.tenant_places]]
tenants = ["acme"]
driver = "local"
root = "{folder}/acme"
[[service.tenant_places]]
driver = "gcs"
endpoint = "{thief.url}"
bucket = "listed"
prefix = "tenants"
[policies]
{DRIVER} = "gcs"
{BUCKET} = "operators-bucket"
{ENDPOINT} = "https://127.0.0.1:9"
{EXTRA} = {{token = "{OPERATORS}"}}
"""
    filters = 'tenant_filters = ["disabled"]'
    with TenantService(tmp_path_factory.mktemp("service"), settings, service=filters) as running:
        yield running


def seen(thief):
    return json.dumps([[request.target, dict(request.headers)] for request in thief.requests])


@pytest.mark.parametrize(
    "said",
    [
        {ENDPOINT: "{thief}"},
        {ENDPOINT: ""},
        {"s3ManagedLedgerOffloadServiceEndpoint": "{thief}"},
        {BUCKET: "another"},
        {"gcsManagedLedgerOffloadBucket": "another"},
        {"managedLedgerOffloadRegion": "elsewhere"},
        {EXTRA: {"proxy": "{thief}"}},
        {EXTRA: {"PROXY": "{thief}"}},
        {EXTRA: {"endpoint_url": "{thief}"}},
        {EXTRA: {"token": OPERATORS, "ca_bundle": "/etc/passwd"}},
        {EXTRA: {"service_account_file": "/etc/passwd"}},
        {EXTRA: {"GOOGLE_APPLICATION_CREDENTIALS": "/etc/passwd"}},
        {EXTRA: {"token": OPERATORS, "google_bucket": "another"}},
        {EXTRA: {"credentials": "os:getcwd"}},
        {
            DRIVER: "gcs",
            ENDPOINT: "{thief}",
            BUCKET: "listed",
            EXTRA: {"prefix": "tenants/acme", "credentials": "os:getcwd"},
        },
        {DRIVER: "s3", BUCKET: "b-b", EXTRA: {"AWS_ENDPOINT_URL": "{thief}"}},
        {EXTRA: {"service_account_json": '{"token_uri": "{thief}"}'}},
        {EXTRA: {"impersonate_service_account": "me@example.com"}},
        {EXTRA: {}},
        {"gcsManagedLedgerOffloadServiceAccountKeyFile": "/etc/passwd"},
        {DRIVER: "s3", ENDPOINT: "{thief}", BUCKET: "b-b"},
        {DRIVER: "azure", BUCKET: "bbb", EXTRA: {"account_name": "other"}},
        {DRIVER: "google-cloud-storage", ENDPOINT: "{thief}"},
        {DRIVER: "gcs", ENDPOINT: "{thief}", BUCKET: "listed", EXTRA: {"prefix": "others"}},
        {DRIVER: "gcs", ENDPOINT: "{thief}", BUCKET: "listed", EXTRA: {"prefix": "tenants/../x"}},
        {
            DRIVER: "gcs",
            ENDPOINT: "{thief}",
            BUCKET: "listed",
            EXTRA: {"prefix": "tenants", "proxy": "http://h"},
        },
        {DRIVER: "gcs", ENDPOINT: "{thief}", BUCKET: "listed", EXTRA: {"prefix": "tenants"}},
        {DRIVER: "local", EXTRA: {"root": "/tmp"}},
        {DRIVER: "file", EXTRA: {"root": "/tmp"}},
        {DRIVER: "filesystem", "fileSystemURI": "file:///tmp"},
        {DRIVER: "filesystem", "fileSystemProfilePath": "/etc/passwd"},
        {DRIVER: "hdfs", "fileSystemURI": "hdfs://host/tmp"},
        {DRIVER: "a-driver-that-is-not-installed"},
        {"managedLedgerOffloadFilter": "of-a-plugin"},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["acme/n", "acme/n/t"])
def test_a_tenant_names_no_place_that_is_not_listed(service, thief, name, said):
    said = json.loads(json.dumps(said).replace("{thief}", thief.url))
    refused = service.set("acme-admin", name, said)
    assert refused.status == 412, refused.text
    assert service.get("acme-admin", name).text == ""
    assert OPERATORS not in refused.text
    assert OPERATORS not in seen(thief)


def test_a_tenant_at_a_listed_place_brings_its_own_credentials(service, thief):
    place = {DRIVER: "gcs", ENDPOINT: thief.url, BUCKET: "listed"}
    own = {EXTRA: {"prefix": "tenants/acme", "token": "of-acme"}}
    assert service.set("acme-admin", "acme/listed", place | own).status == 204
    assert service.schema("acme-admin", "acme/listed/t").status == 404
    assert "of-acme" in seen(thief)
    assert OPERATORS not in seen(thief)


def test_what_does_not_name_a_tier_is_a_tenants_own(service):
    said = {"managedLedgerOffloadThresholdInBytes": 5, "managedLedgerOffloadMaxThreads": 3}
    assert service.set("acme-admin", "acme/own", said).status == 204
    assert service.get("acme-admin", "acme/own").json == said
    assert (
        service.get("acme-admin", "acme/own/t", "offloadPolicies?applied=true").json[BUCKET]
        == "operators-bucket"
    )


def test_an_operator_names_any_place_and_a_tenant_keeps_it_but_does_not_move_it(service, thief):
    secret = {DRIVER: "gcs", BUCKET: "b-b", ENDPOINT: thief.url, EXTRA: {"token": "SUPER-SECRET-2"}}
    assert service.set("admin", "acme/m", secret).status == 204
    shown = service.get("acme-admin", "acme/m").json
    assert shown == secret | {EXTRA: {"token": "********"}}
    assert service.set("acme-admin", "acme/m", shown | {"managedLedgerOffloadMaxThreads": 9}).status == 204
    assert service.schema("acme-admin", "acme/m/t").status == 404
    assert "SUPER-SECRET-2" in seen(thief)
    for changed in (
        {ENDPOINT: "http://127.0.0.1:1"},
        {BUCKET: "other"},
        {DRIVER: "s3"},
        {EXTRA: {"token": "********", "proxy": "http://127.0.0.1:1"}},
        {EXTRA: {"token": "********", "prefix": "x"}},
    ):
        for role in ("acme-admin", "admin"):
            refused = service.set(role, "acme/m", shown | changed)
            allowed = role == "admin" and changed.get(EXTRA, {}).get("prefix")
            assert refused.status == (204 if allowed else 412), (role, changed, refused.text)
        assert service.set("admin", "acme/m", secret).status == 204
    without = {name: value for name, value in shown.items() if name != ENDPOINT}
    assert service.set("acme-admin", "acme/m", without).status == 412
    assert service.set("acme-admin", "acme/m/t", {BUCKET: "other"}).status == 412
    assert service.set("acme-admin", "acme/m/t", {ENDPOINT: "http://127.0.0.1:1"}).status == 412
    assert service.remove("acme-admin", "acme/m").status == 204
    assert service.get("acme-admin", "acme/m").text == ""


def test_a_tenant_does_not_move_what_an_operator_set_for_a_topic(service, thief):
    assert service.set("admin", "acme/o", {ENDPOINT: thief.url, EXTRA: {"token": "t"}}).status == 204
    assert service.set("admin", "acme/o/t", {BUCKET: "of-the-topic"}).status == 204
    refused = service.remove("acme-admin", "acme/o")
    assert (refused.status, "of a topic" in refused.text) == (412, True)
    assert service.remove("admin", "acme/o").status == 204


def test_a_stored_policy_that_no_operator_vouches_for_opens_nothing(service, thief):
    """As of a record that a live Pulsar's broker wrote for a tenant."""
    stored = [
        {ENDPOINT: thief.url},
        {DRIVER: "gcs", ENDPOINT: thief.url, BUCKET: "b-b"},
        {DRIVER: "gcs", ENDPOINT: thief.url, BUCKET: "b-b", EXTRA: {"token": "own"}},
        {DRIVER: "local", EXTRA: {"root": "/tmp"}},
        {BUCKET: "another"},
    ]
    for number, said in enumerate(stored):
        with closing(open_metadata_store(service.metadata)) as store:
            record = json.dumps({"offload_policies": said, "pulsarOffloadVouchedTier": "0" * 64})
            store.put(f"/admin/policies/acme/stored{number}", record.encode(), None)
        before = len(thief.requests)
        assert service.schema("acme-admin", f"acme/stored{number}/t").status == 412
        assert len(thief.requests) == before
        name = f"acme/stored{number}"
        path = f"/admin/v2/namespaces/{name}/offloadThreshold"
        assert service.ask("PUT", path, 5, headers=bearer("acme-admin")).status == 204
        assert service.schema("acme-admin", f"{name}/t").status == 412
        assert service.remove("acme-admin", name).status == 204


def test_a_command_is_an_operators(service, thief, offload):
    setting = ("namespaces", "set-offload-policies", "acme/cli", "--config", service.config)
    setting += ("driver=gcs", f"service_endpoint={thief.url}")
    done = offload(*setting, "bucket=b-b", "managedLedgerOffloadExtraConfigtoken=cli-token")
    assert done.code == 0, done.err
    assert service.schema("acme-admin", "acme/cli/t").status == 404
    assert "cli-token" in seen(thief)
    masked = offload(*setting, "bucket=c-c", "managedLedgerOffloadExtraConfigtoken=********")
    assert masked.code == 2
    assert "a masked secret is not kept" in masked.err


def test_a_folder_below_the_listed_one_is_a_tenants_and_no_other(service, folder, tmp_path):
    (folder / "acme" / "link").symlink_to(tmp_path)
    (folder / "acme-2").mkdir(exist_ok=True)

    def asked(role, name, root):
        return service.set(role, name, {DRIVER: "local", EXTRA: {"root": str(root)}})

    outside = [folder, folder / "acme-2", folder / "acme" / "..", folder / "acme" / "link", "/etc/shadow"]
    outside += ["relative", folder / "acme" / "x" / ".." / ".." / "acme-2", "/", "", f"{folder}/acme\0"]
    texts = {asked("acme-admin", "acme/files", root).text for root in [*outside, "/nonexistent"]}
    assert len(texts) == 1, "an error is no oracle of files"
    assert asked("zeta-admin", "zeta/files", folder / "acme").status == 412
    assert asked("acme-admin", "acme/files", folder / "acme" / "cold").status == 204
    assert service.schema("acme-admin", "acme/files/t").status == 404
    (folder / "acme" / "cold").symlink_to(tmp_path)
    assert service.schema("acme-admin", "acme/files/t").status == 412


def test_a_tenant_is_told_no_places_of_the_operators(service, tmp_path_factory):
    root = tmp_path_factory.mktemp("hidden") / "file"
    root.write_text("x")
    assert service.set("admin", "acme/hidden", {DRIVER: "local", EXTRA: {"root": str(root)}}).status == 204
    told = service.schema("acme-admin", "acme/hidden/t")
    assert str(root.parent) not in told.text
    assert told.status in (404, 500), told.text


def test_a_tenant_is_told_no_secret_of_an_operators_policies_and_keeps_them_all(service):
    secrets = {
        DRIVER: "gcs",
        BUCKET: "b-b",
        ENDPOINT: "https://operator:hunter2@127.0.0.1:1",
        EXTRA: {"proxy": "http://u:hunter2@127.0.0.1:1", "endpoint": "https://h/?signature=hunter2"},
        "of-another-version": {"password": "hunter2", "list": [{"token": "hunter2"}], "kept": 1},
    }
    assert service.set("admin", "acme/shown", secrets).status == 204
    told = [
        service.get("acme-admin", name, what)
        for name in ("acme/shown", "acme/shown/t")
        for what in ("offloadPolicies", "offloadPolicies?applied=true", "")
    ]
    assert any(ENDPOINT in answer.text for answer in told)
    assert not any("hunter2" in answer.text for answer in told)

    def stored():
        with closing(open_metadata_store(service.metadata)) as store:
            found = store.get("/admin/policies/acme/shown")
            return json.loads(found[0])["offload_policies"]

    shown = service.get("acme-admin", "acme/shown").json
    assert service.set("acme-admin", "acme/shown", shown).status == 204
    assert stored() == secrets
    for changed in (
        {ENDPOINT: "https://********@127.0.0.1:2"},
        {"of-another-version": {"password": "********"}},
        {"of-a-third": [{"token": "********"}]},
    ):
        refused = service.set("admin", "acme/shown", shown | changed)
        assert (refused.status, "is masked" in refused.text) == (412, True)
    assert stored() == secrets


def test_a_tenant_gives_no_options_to_a_filter_that_is_not_listed(service):
    said = {"managedLedgerOffloadFilter": "transactions"}
    assert service.set("admin", "acme/filtered", said).status == 204
    for more in (
        {"managedLedgerOffloadFilterOptions": {"x": "y"}},
        {"managedLedgerOffloadFilterMode": "gap"},
    ):
        assert service.set("acme-admin", "acme/filtered", said | more).status == 412
        assert service.set("acme-admin", "acme/filtered/t", more).status == 412
    assert (
        service.set("acme-admin", "acme/filtered", said | {"managedLedgerOffloadMaxThreads": 3}).status == 204
    )


@pytest.mark.long
def test_a_tenant_that_completes_a_segment_is_told_no_place_of_the_operators(tmp_path):
    key = tmp_path / "operators-place" / "key.json"
    settings = f"""
[hot_tier.options]
path = "{tmp_path}/hot"
[policies]
{DRIVER} = "gcs"
{BUCKET} = "b-b"
gcsManagedLedgerOffloadServiceAccountKeyFile = "{key}"
managedLedgerOffloadStreaming = true
"""
    service = TenantService(tmp_path, settings)
    with opened_topic(service.config, "acme/n/persistent/t") as (_, ledger):
        ledger.add_entries([b"payload"])
    path, message = "/admin/v2/persistent/acme/n/t/offload", {"ledgerId": 10**9, "entryId": 0}
    with service:
        by_operator = service.ask("PUT", path, message, headers=bearer("admin"))
        by_tenant = service.ask("PUT", path, message, headers=bearer("acme-admin"))
    assert (by_operator.status, str(key) in by_operator.text) == (412, True)
    assert (by_tenant.status, str(key) in by_tenant.text) == (412, False)
