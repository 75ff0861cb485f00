"""The driver `gcs` where other servers of Google say who it is; a front before the emulator plays them."""

from __future__ import annotations

import base64
import json
import logging
import os
from urllib.parse import parse_qs

import pytest
from gcs import PREFIX, SECRET, opened, pem
from network.fronts import Answer

from offload_drivers.gcs.credentials import STORAGE_SCOPE
from offload_hooks.errors import AccessDeniedError


@pytest.fixture
def options(bucket, google):
    return {"bucket": bucket, "prefix": PREFIX, "endpoint_url": google.url}


def use(driver):
    driver.write_index("k", b"x", "a/b", {}, False)
    assert [found.key for found in driver.list_objects("", "")] == ["k"]


def test_the_machines_own_service_account(run_program, options, google):
    program = """
        import sys
        from offload_drivers.gcs import GcsDriver

        driver = GcsDriver(bucket=sys.argv[1], endpoint_url=sys.argv[2])
        driver.write_index("k", b"x", "a/b", {}, False)
        print(driver.stat("k").size_bytes)
        driver.close()
    """
    host = f"127.0.0.1:{google.port}"
    environment = {"GCE_METADATA_HOST": host, "GCE_METADATA_IP": host, "CLOUDSDK_CONFIG": os.devnull}
    assert run_program(program, options["bucket"], options["endpoint_url"], **environment) == "1\n"
    tokens = [request for request in google.requests if request.path.endswith("/token")]
    assert [request.parameters.get("scopes") for request in tokens] == [STORAGE_SCOPE]


def test_a_workload_of_another_cloud(options, google, monkeypatch, tmp_path):
    subject = tmp_path / "subject"
    subject.write_text("signed-by-the-other-cloud")
    configuration = tmp_path / "configuration.json"
    federation = {
        "type": "external_account",
        "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": f"{google.url}/token",
        "credential_source": {"file": str(subject)},
    }
    configuration.write_text(json.dumps(federation))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(configuration))
    with opened(**options) as driver:
        use(driver)
    asked = parse_qs(google.requests[0].body.decode())
    assert asked["subject_token"] == ["signed-by-the-other-cloud"]
    assert asked["scope"] == [STORAGE_SCOPE]
    assert google.given == 1


def test_another_service_account_is_acted_as(options, google, key, monkeypatch):
    path = "/v1/projects/-/serviceAccounts/{}:generateAccessToken"
    monkeypatch.setattr("google.auth.iam._IAM_ENDPOINT", google.url + path)
    other = "other@project.iam.gserviceaccount.com"
    with opened(**options, service_account_json=key, impersonate_service_account=other) as driver:
        use(driver)
    own, others, *_ = google.requests
    claims = base64.urlsafe_b64decode(parse_qs(own.body.decode())["assertion"][0].split(".")[1] + "==")
    assert json.loads(claims)["scope"] == "https://www.googleapis.com/auth/iam"
    assert others.path == path.format(other)
    assert json.loads(others.body)["scope"] == [STORAGE_SCOPE]
    assert google.given == 2


def test_no_log_shows_a_secret(options, google, key, private_key, caplog):
    caplog.set_level(logging.DEBUG)
    proxy = f"http://me:hunter2secret@127.0.0.1:{google.port}"
    with opened(**options, service_account_json=key, proxy=proxy) as driver:
        use(driver)
        google.given += 1  # what was given before counts no more
        use(driver)
        google.rule = lambda request: Answer(status=403, body=str(request.headers).encode())
        with pytest.raises(AccessDeniedError):
            driver.stat("k")
    with opened(**options, token=f"{SECRET}-wrong") as driver, pytest.raises(AccessDeniedError):
        driver.stat("k")
    assert "/token" in caplog.text
    for secret in (SECRET, "hunter2", pem(private_key).splitlines()[1]):
        assert secret not in caplog.text
