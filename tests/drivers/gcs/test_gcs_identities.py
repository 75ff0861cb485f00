"""The driver `gcs` where other servers of Google say who it is; a front before the emulator plays them."""

from __future__ import annotations

import base64
import json
import logging
import os
import subprocess
import sys
import textwrap
from urllib.parse import parse_qs

import google.auth.iam
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from gcs import PREFIX, SECRET, Google, new_bucket, opened, pem
from network.fronts import Answer

from offload_drivers.gcs.credentials import STORAGE_SCOPE
from offload_hooks.errors import AccessDeniedError


@pytest.fixture
def google_servers(fake_gcs):
    with Google(fake_gcs) as servers:
        yield servers


@pytest.fixture
def options(fake_gcs, google_servers):
    return {"bucket": new_bucket(fake_gcs), "prefix": PREFIX, "endpoint_url": google_servers.url}


@pytest.fixture(scope="module")
def private_key():
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def use(driver):
    driver.write_index("k", b"x", "a/b", {}, False)
    assert [found.key for found in driver.list_objects("", "")] == ["k"]


def test_the_machines_own_service_account(options, google_servers):
    program = """
        import sys
        from offload_drivers.gcs import GcsDriver

        driver = GcsDriver(bucket=sys.argv[1], endpoint_url=sys.argv[2])
        driver.write_index("k", b"x", "a/b", {}, False)
        print(driver.stat("k").size_bytes)
        driver.close()
    """
    host = f"127.0.0.1:{google_servers.port}"
    kept = {name: os.environ[name] for name in ("HOME", "PATH", "PYTHONPATH") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), options["bucket"], options["endpoint_url"]],
        env=kept | {"GCE_METADATA_HOST": host, "GCE_METADATA_IP": host, "CLOUDSDK_CONFIG": os.devnull},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
    tokens = [request for request in google_servers.requests if request.path.endswith("/token")]
    assert [request.parameters.get("scopes") for request in tokens] == [STORAGE_SCOPE]


def test_a_workload_of_another_cloud(options, google_servers, monkeypatch, tmp_path):
    subject = tmp_path / "subject"
    subject.write_text("signed-by-the-other-cloud")
    configuration = tmp_path / "configuration.json"
    federation = {
        "type": "external_account",
        "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": f"{google_servers.url}/token",
        "credential_source": {"file": str(subject)},
    }
    configuration.write_text(json.dumps(federation))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(configuration))
    with opened(**options) as driver:
        use(driver)
    asked = parse_qs(google_servers.requests[0].body.decode())
    assert asked["subject_token"] == ["signed-by-the-other-cloud"]
    assert asked["scope"] == [STORAGE_SCOPE]
    assert google_servers.given == 1


def test_another_service_account_is_acted_as(options, google_servers, private_key, monkeypatch):
    path = "/v1/projects/-/serviceAccounts/{}:generateAccessToken"
    monkeypatch.setattr(google.auth.iam, "_IAM_ENDPOINT", google_servers.url + path)
    key = google_servers.service_account_key(private_key)
    other = "other@project.iam.gserviceaccount.com"
    with opened(**options, service_account_json=key, impersonate_service_account=other) as driver:
        use(driver)
    own, others, *_ = google_servers.requests
    claims = parse_qs(own.body.decode())["assertion"][0].split(".")[1]
    assert (
        json.loads(base64.urlsafe_b64decode(claims + "=="))["scope"] == "https://www.googleapis.com/auth/iam"
    )
    assert others.path == path.format(other)
    assert json.loads(others.body)["scope"] == [STORAGE_SCOPE]
    assert google_servers.given == 2


def test_no_log_shows_a_secret(options, google_servers, private_key, caplog):
    caplog.set_level(logging.DEBUG)
    key = google_servers.service_account_key(private_key)
    proxy = f"http://me:hunter2secret@127.0.0.1:{google_servers.port}"
    with opened(**options, service_account_json=key, proxy=proxy) as driver:
        use(driver)
        google_servers.given += 1  # what was given before counts no more
        use(driver)
        google_servers.rule = lambda request: Answer(status=403, body=str(request.headers).encode())
        with pytest.raises(AccessDeniedError):
            driver.stat("k")
    with opened(**options, token=f"{SECRET}-wrong") as driver, pytest.raises(AccessDeniedError):
        driver.stat("k")
    assert "/token" in caplog.text
    for secret in (SECRET, "hunter2", pem(private_key).splitlines()[1]):
        assert secret not in caplog.text
