"""`offload serve`: policies by Pulsar's paths, refusals, health, metrics, logs; and who is let in."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import jwt
import pytest
from service import EXTRA, KEY, Service

from offload_core.metadata.stores import open_metadata_store

SECRET = "s3ManagedLedgerOffloadCredentialSecret"


def stored(service, namespace):
    """The record of a namespace."""
    with closing(open_metadata_store(service.metadata)) as store:
        kept = store.get(f"/admin/policies/{namespace.removeprefix('/admin/v2/namespaces/')}")
    return json.loads(kept[0])


def test_the_command_line_and_the_service_see_the_same(service, namespace, offload):
    name = namespace.removeprefix("/admin/v2/namespaces/")
    place = ("--metadata", service.metadata)
    done = offload("namespaces", "set-offload-threshold", name, "--size", "5", *place)
    assert done.code == 0, done.err
    assert service.ask("GET", f"{namespace}/offloadThreshold").json == 5
    assert service.ask("PUT", f"{namespace}/offloadDeletionLagMs", 7000).status == 204
    assert offload("namespaces", "get-offload-deletion-lag", name, *place).out.strip() == "7000"


def test_what_is_applied_to_a_topic_comes_from_all_levels(service, namespace):
    topic = f"{namespace.replace('namespaces', 'persistent')}/a%2Fb"
    service.ask("POST", f"{namespace}/offloadPolicies", {"managedLedgerOffloadBucket": "cold"})
    service.ask("POST", f"{topic}/offloadPolicies", {"tieredReadPriority": "BOOKKEEPER_ONLY"})
    applied = service.ask("GET", f"{topic}/offloadPolicies?applied=true").json
    assert applied["managedLedgerOffloadDriver"] == "aws-s3"
    assert applied["managedLedgerOffloadBucket"] == "cold"
    assert applied["tieredReadPriority"] == "BOOKKEEPER_ONLY"
    assert applied["managedLedgerOffloadedReadPriority"] == "TIERED_STORAGE_FIRST"
    assert applied[SECRET] == "********"
    said = service.ask("GET", f"{topic}-partition-3/offloadPolicies").json
    assert said == {"tieredReadPriority": "BOOKKEEPER_ONLY"}


def test_a_secret_that_is_given_back_masked_stays(service, namespace):
    path = f"{namespace}/offloadPolicies"
    service.ask("POST", path, {"managedLedgerOffloadDriver": "s3", SECRET: "hunter3"})
    shown = service.ask("GET", path).json
    assert shown == {"managedLedgerOffloadDriver": "s3", SECRET: "********"}
    assert service.ask("POST", path, shown | {"managedLedgerOffloadMaxThreads": 7}).status == 204
    assert stored(service, namespace)["offload_policies"] == {
        "managedLedgerOffloadDriver": "s3",
        "managedLedgerOffloadMaxThreads": 7,
        SECRET: "hunter3",
    }


def test_secrets_of_other_versions_and_drivers_are_masked_and_stay(service, namespace):
    path = f"{namespace}/offloadPolicies"
    extra = {"root": "/r", "connection_string": "hunter4"}
    given = {"newCredentialSecret": "hunter5", EXTRA: extra}
    assert service.ask("POST", path, given).status == 204
    masked = {"newCredentialSecret": "********", EXTRA: extra | {"connection_string": "********"}}
    assert service.ask("GET", path).json == masked
    assert service.ask("POST", path, masked).status == 204
    assert stored(service, namespace)["offload_policies"] == given


def test_a_record_that_cannot_be_read_is_named_and_can_be_removed(service, namespace):
    topic = f"{namespace.replace('namespaces', 'persistent')}/t"
    name = namespace.removeprefix("/admin/v2/namespaces/")
    records = [f"/admin/policies/{name}", f"/admin/topic-policies/{name}/persistent/t"]
    with closing(open_metadata_store(service.metadata)) as store:
        for record in records:
            store.put(record, b"nonsense", None)
    for path, record in zip((namespace, topic), records, strict=True):
        told = service.ask("GET", f"{path}/offloadPolicies")
        assert (told.status, record in told.text) == (500, True)
        assert service.ask("DELETE", f"{path}/offloadPolicies").status == 204
        assert service.ask("GET", f"{path}/offloadPolicies").text == ""


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "reason"),
    [
        ("PUT", "/offloadThreshold", "5", 400, "no whole number"),
        ("PUT", "/offloadThreshold", True, 400, "no whole number"),
        ("PUT", "/offloadThreshold", 2**63, 400, "no whole number"),
        ("PUT", "/offloadThreshold", b"{", 400, "not JSON"),
        ("PUT", "/offloadThreshold", b"[" * 100_000, 400, "not JSON"),
        ("PUT", "/offloadThreshold", b"1" * (1 << 20) + b"1", 400, "too long"),
        ("POST", "/offloadPolicies", b'{"x": NaN}', 400, "not JSON"),
        ("POST", "/offloadPolicies", b'{"x": 1e999}', 400, "not JSON"),
        ("POST", "/offloadPolicies", b'{"x": "\\ud800"}', 400, "not JSON"),
        ("POST", "/offloadPolicies", [1], 400, "no JSON object"),
        ("POST", "/offloadPolicies", {SECRET: "********"}, 412, "no secret is kept"),
        ("POST", "/offloadPolicies", {"newSecret": "********"}, 412, "no secret is kept"),
        ("POST", "/offloadPolicies", {EXTRA: {"key": "********"}}, 412, "no secret is kept"),
        ("POST", "/offloadPolicies", {"managedLedgerOffloadDriver": "s4"}, 412, "driver 's4'"),
        ("POST", "/offloadPolicies", {"managedLedgerOffloadMaxThreads": 0}, 412, "MaxThreads"),
        ("POST", "/retention", {"retentionTimeInMinutes": -5, "retentionSizeInMB": 1}, 412, "retention"),
        ("POST", "/retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 1}, 412, "0 minutes, 1 MB"),
        ("GET", "/nothing", None, 404, "Not Found"),
        ("PATCH", "/retention", {}, 405, "Method Not Allowed"),
    ],
)
def test_what_cannot_be_done_is_told_with_its_reason(service, namespace, method, path, body, status, reason):
    answer = service.ask(method, f"{namespace}{path}", body)
    assert answer.status == status
    assert reason in answer.json["reason"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_body_that_a_page_could_send_is_not_taken(service, namespace, kind):
    headers = {"Content-Type": kind}
    answer = service.ask("POST", f"{namespace}/retention", b"{}", headers=headers)
    assert answer.status == 400
    assert "Content-Type: application/json" in answer.json["reason"]


@pytest.mark.parametrize("host", ["example.com", "example.com:8080", "10.0.0.1", "", "[2001:db8::1]:80"])
def test_without_tokens_other_names_of_this_machine_are_refused(service, host):
    answer = service.ask("GET", "/metrics", headers={"Host": host})
    assert answer.status == 403
    for own in ("localhost:1", "127.0.0.1", "[::1]:8080"):
        assert service.ask("GET", "/metrics", headers={"Host": own}).status == 200


@pytest.mark.parametrize("name", ["..", "%2e%2e", "a%2Fb", "%00"])
def test_names_lead_nowhere_else(service, name):
    answer = service.ask("PUT", f"/admin/v2/namespaces/acme/{name}/offloadThreshold", 1)
    assert answer.status in (404, 412)


@pytest.mark.parametrize(
    "path", ["v2%2Fpersistent/acme/n/t/u", "v2/persistent/acme%2Fn/t", "v2/persistent/acme/n/t%2F"]
)
def test_a_slash_that_is_encoded_makes_no_other_topic(service, path):
    path = f"/admin/{path}retention" if path.endswith("%2F") else f"/admin/{path}/retention"
    assert service.ask("POST", path, {"retentionTimeInMinutes": 5, "retentionSizeInMB": 5}).status == 404


def test_concurrent_changes_are_all_kept(service, namespace):
    paths = ["offloadThreshold", "offloadThresholdInSeconds", "offloadDeletionLagMs"]

    def put(path):
        return [service.ask("PUT", f"{namespace}/{path}", number).status for number in range(1, 8)]

    with ThreadPoolExecutor() as pool:
        assert {status for statuses in pool.map(put, paths) for status in statuses} == {204}
    assert [service.ask("GET", f"{namespace}/{path}").json for path in paths] == [7, 7, 7]


def test_requests_are_counted_by_route_and_logged_without_bodies(service, namespace):
    path, said = f"{namespace}/offloadPolicies", {SECRET: "hunter4", "managedLedgerOffloadMaxThreads": 0}
    service.ask("POST", path, said)
    service.ask("FLY", path)
    text = service.ask("GET", "/metrics").text
    route = 'route="/admin/v2/namespaces/{tenant}/{namespace}/offloadPolicies",status="412"'
    assert f'pulsar_offload_requests_total{{method="POST",{route}}}' in text
    assert "FLY" not in text
    assert namespace.rpartition("/")[2] not in text
    line = next(line for line in service.log if line.get("path") == path)
    assert (line["event"], line["method"], line["status"]) == ("request", "POST", 412)
    assert "hunter" not in json.dumps(service.log)


# --- tokens ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "secret.key").write_bytes(KEY)
    settings = f'[service.tokens]\nsecret_key = "{folder}/secret.key"\nsuperuser_roles = ["admin"]\naudience = "here"\n'
    settings += 'tenant_admin_roles = {acme = ["acme-admin", "both"], zeta = ["both"]}\n'
    with Service(folder, settings) as running:
        yield running


def bearer(key=KEY, algorithm="HS256", **claims):
    token = jwt.encode({"sub": "admin", "aud": "here"} | claims, key, algorithm)
    return {"Authorization": f"Bearer {token}"}


def test_a_good_token_is_let_in(guarded):
    for headers in (bearer(), bearer(aud=["there", "here"]), bearer(algorithm="HS512"), bearer(exp=2**40)):
        answer = guarded.ask("GET", "/admin/v2/namespaces/acme/n/offloadThreshold", headers=headers)
        assert (answer.status, answer.json) == (200, -1)
    assert guarded.ask("GET", "/metrics", headers=bearer()).status == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Basic YWRtaW46YWRtaW4="}, 401),
        ({"Authorization": "Bearer "}, 401),
        ({"Authorization": "Bearer a.b.c"}, 401),
        (bearer(b"x" * 64), 401),
        (bearer(exp=1), 401),
        (bearer(nbf=2**40), 401),
        (bearer(aud="there"), 401),
        (bearer(aud=None), 401),
        (bearer(sub=""), 401),
        (bearer(sub=7), 401),
        ({"Authorization": "Bearer " + jwt.encode({"sub": "admin", "aud": "here"}, "", "none")}, 401),
        (bearer(sub="somebody"), 403),
    ],
)
def test_others_are_not(guarded, headers, status):
    for path in ("/admin/v2/namespaces/acme/n/offloadThreshold", "/metrics", "/nothing"):
        answer = guarded.ask("GET", path, headers=headers)
        assert answer.status == status, answer.text
        assert ("www-authenticate" in answer.headers) == (status == 401)
        token = headers.get("Authorization", "")[7:]
        assert not token or token not in answer.text


ACME = "/admin/v2/namespaces/acme"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (ACME, 200),
        (f"{ACME}/n/offloadThreshold", 200),
        ("/admin/v2/persistent/acme/n", 200),
        ("/admin/v2/schemas/acme/n/a%2Fb/schemas", 200),
        ("/admin/v2/persistent/acme/n/none/internalStats", 404),
        ("/metrics", 403),
        ("/admin/v2/tenants", 403),
        ("/admin/v2/namespaces/other", 403),
        ("/admin/v2/namespaces/other/n/offloadThreshold", 403),
        ("/admin/v2/namespaces/acme%2Fn/n/offloadThreshold", 403),
        ("/admin/v2/namespaces//acme/n/offloadThreshold", 403),
        ("/admin/v2%2Fnamespaces/acme/n/offloadThreshold", 403),
        ("/admin/v2/persistent/acme/../other/t/internalStats", 403),
        ("/admin/v2/persistent/acme/%2e%2e/other/internalStats", 403),
        ("/admin/v2/persistent/acme/..%2Fother/n/t/internalStats", 403),
        ("/admin/v2/persistent/ACME/n", 403),
    ],
)
def test_a_tenants_admin_may_do_all_in_the_tenant_and_nothing_else(guarded, path, status):
    assert guarded.ask("GET", path, headers=bearer(sub="acme-admin")).status == status
    assert guarded.ask("GET", path, headers=bearer(sub="somebody")).status == 403


def test_a_role_may_be_admin_of_several_tenants(guarded):
    for tenant, status in (("acme", 204), ("zeta", 204), ("other", 403)):
        path = f"/admin/v2/namespaces/{tenant}/told/offloadThreshold"
        assert guarded.ask("PUT", path, 5, headers=bearer(sub="both")).status == status


def test_health_needs_no_token(guarded):
    assert guarded.ask("GET", "/admin/v2/brokers/health").text == "ok"


# --- what is refused before it serves ----------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "flags", "message"),
    [
        ("", ("--host", "0.0.0.0"), "without tokens this service binds to loopback only"),
        ("", ("--host", "example.com"), "without tokens this service binds to loopback only"),
        ("", ("--tls-key", "x"), "a key without its certificate"),
        ("", ("--tls-certificate", "nowhere.pem"), "the certificate or its key cannot be used"),
        ('service.tokens.secret_key = "a2V5"', (), "superuser_roles"),
        ('service.tokens.superuser_roles = ["a"]', (), "tokens need a key"),
        ('service.tokens = {secret_key = "a2V5", superuser_roles = ["a"]}', (), "too short"),
        (
            'service.tokens = {secret_key = "/no where", superuser_roles = ["a"]}',
            (),
            "neither a file nor base64",
        ),
        ('service.tokens = {public_key = "a2V5", superuser_roles = ["a"]}', (), "no public key for RS256"),
        (
            'service.tokens = {public_key = "a2V5", public_algorithm = "HS256", superuser_roles = ["a"]}',
            (),
            "no such algorithm of public keys",
        ),
        ("policies.driver = 's4'", (), "driver 's4'"),
    ],
)
def test_a_service_that_would_be_wrong_does_not_start(offload, tmp_path, settings, flags, message):
    config = tmp_path / "offload.toml"
    config.write_text(
        f'{settings}\nmetadata.url = "sqlite:{tmp_path}/m.db"\nmetadata.options.create = true\n'
    )
    done = offload("serve", "--config", config, "--port", 0, *flags)
    assert done.code in (1, 2)
    assert message in done.err
