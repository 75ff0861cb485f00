"""Whose requests they are: each way to credentials, with real services that hand them out and a server that checks."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import traceback
from datetime import UTC, datetime, timedelta
from functools import partial
from threading import Barrier, BrokenBarrierError
from urllib.parse import parse_qs

import pytest
from commands import COMMAND
from network.fronts import Answer, Front
from s3 import opened, options, signed_anew

from offload_core.storage.tier import open_store
from offload_hooks import ByteRange
from offload_hooks.bounded_map import bounded_map
from offload_hooks.errors import AccessDeniedError, OptionError, StoreUnavailableError

ROLE = "arn:aws:iam::123456789012:role/cold-storage"
TOKEN = "a-session-token"
TEMPORARY = "ASIATEMPORARY"


@pytest.fixture
def place(versitygw, bucket):
    """Where the tier is, without credentials."""
    return {"bucket": bucket, "endpoint_url": versitygw.endpoint, "region": versitygw.region}


def works(driver):
    driver.write_index("k", b"data", "a/b", {}, False)
    assert driver.read_range("k", 1, 2) == b"at"
    return True


class Sts:
    """STS for one role: what it was asked, and how long the credentials are valid that it gives."""

    def __init__(self, valid_s):
        self.valid_s = valid_s
        self.asked = []

    def __call__(self, request):
        asked = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
        asked["by"] = request.headers.get("authorization", "nobody")
        self.asked.append(asked)
        expires = datetime.now(UTC) + timedelta(seconds=self.valid_s)
        body = f"""
            <{asked["Action"]}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
              <{asked["Action"]}Result>
                <AssumedRoleUser><Arn>{ROLE}/x</Arn><AssumedRoleId>AROA:x</AssumedRoleId></AssumedRoleUser>
                <Credentials>
                  <AccessKeyId>{TEMPORARY}</AccessKeyId>
                  <SecretAccessKey>{"t" * 40}</SecretAccessKey>
                  <SessionToken>{TOKEN}-{len(self.asked)}</SessionToken>
                  <Expiration>{expires:%Y-%m-%dT%H:%M:%SZ}</Expiration>
                </Credentials>
              </{asked["Action"]}Result>
            </{asked["Action"]}Response>""".strip()
        return Answer(status=200, body=body.encode(), headers={"Content-Type": "text/xml"})


class Sessions:
    """What versitygw lacks: requests with temporary credentials are signed anew with those of its root user."""

    def __init__(self, server):
        self._server = server
        self.tokens = []

    def __call__(self, request):
        if f"Credential={TEMPORARY}/" not in request.headers["authorization"]:
            return request
        self.tokens.append(request.headers["x-amz-security-token"])
        return signed_anew(request, self._server)


@pytest.fixture
def front(versitygw):
    """The server, which knows temporary credentials."""
    with Front(versitygw.endpoint) as front:
        front.change = Sessions(versitygw)
        yield front


@pytest.fixture
def behind(place, front):
    return place | {"endpoint_url": front.url}


# --- static ones, and those of the environment ---------------------------------------------------


def test_a_session_token_goes_with_every_request(behind, front):
    given = {"access_key_id": TEMPORARY, "secret_access_key": "t" * 40, "session_token": TOKEN}
    with opened(**behind, **given) as driver:
        assert works(driver)
    assert set(front.change.tokens) == {TOKEN}
    assert len(front.change.tokens) == len(front.requests)


def test_the_environments_keys(place, versitygw, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", versitygw.root.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", versitygw.root.secret_key)
    with opened(**place) as driver:
        assert works(driver)


def test_a_profiles_keys(place, versitygw, tmp_path):
    (tmp_path / "credentials").write_text(
        f"[cold]\naws_access_key_id = {versitygw.root.access_key}\n"
        f"aws_secret_access_key = {versitygw.root.secret_key}\n"
    )
    with opened(**place, profile="cold") as driver:
        assert works(driver)


def test_an_option_goes_before_the_environment(place, versitygw, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody-else")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x" * 40)
    with opened(**options(versitygw, **place)) as driver:
        assert works(driver)


def test_the_roles_of_an_instance_and_of_a_container(behind, monkeypatch):
    def given(request):
        found = {
            "Code": "Success",
            "AccessKeyId": TEMPORARY,
            "SecretAccessKey": "t" * 40,
            "Token": TOKEN,
            "Expiration": f"{datetime.now(UTC) + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}",
        }
        if request.path == "/latest/api/token":
            return Answer(status=200, body=b"a-token")
        if request.path == "/latest/meta-data/iam/security-credentials/":
            return Answer(status=200, body=b"the-role")
        assert request.path in ("/latest/meta-data/iam/security-credentials/the-role", "/container")
        return Answer(status=200, body=json.dumps(found).encode())

    with Front(rule=given) as service:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{service.url}/container")
        with opened(**behind) as driver:
            assert works(driver)
        monkeypatch.delenv("AWS_CONTAINER_CREDENTIALS_FULL_URI")
        monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", service.url)
        with opened(**behind) as driver:
            assert works(driver)


def test_without_any_credentials_access_is_denied_with_a_hint(place):
    with opened(**place) as driver, pytest.raises(AccessDeniedError, match="access_key_id"):
        driver.stat("k")


def test_anonymous_requests_are_not_signed(place, versitygw, boto, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", versitygw.root.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", versitygw.root.secret_key)
    reading = {"Effect": "Allow", "Principal": "*", "Action": ["s3:GetObject"]}
    statement = reading | {"Resource": f"arn:aws:s3:::{boto.bucket}/*"}
    policy = {"Version": "2012-10-17", "Statement": [statement]}
    boto.client.put_bucket_policy(Bucket=boto.bucket, Policy=json.dumps(policy))
    boto.client.put_object(Bucket=boto.bucket, Key="k", Body=b"data")
    with Front(versitygw.endpoint) as front:
        with opened(**place | {"endpoint_url": front.url}, anonymous="true") as driver:
            assert driver.read_range("k", 1, 2) == b"at"
            with pytest.raises(AccessDeniedError):
                driver.write_index("other", b"data", "a/b", {}, False)
        assert not [request for request in front.requests if "authorization" in request.headers]


# --- a role to assume ----------------------------------------------------------------------------

ASKING = {"access_key_id": "who-asks", "secret_access_key": "hunter2secret", "role_arn": ROLE}


@pytest.fixture
def sts():
    """STS at `sts.url`."""
    rule = Sts(valid_s=3600)
    with Front(rule=rule) as service:
        rule.url = service.url
        yield rule


def test_a_role_is_assumed_once_and_used_for_all(behind, front, sts):
    given = behind | ASKING | {"sts_endpoint_url": sts.url}
    with opened(**given, role_session_name="me", external_id="theirs") as driver:
        assert works(driver)
    assert set(front.change.tokens) == {f"{TOKEN}-1"}
    (asked,) = sts.asked
    assert "Credential=who-asks/" in asked.pop("by")
    assert asked.pop("Version")
    assert asked == {"Action": "AssumeRole", "RoleArn": ROLE, "RoleSessionName": "me", "ExternalId": "theirs"}


def test_a_role_is_assumed_with_what_the_environment_has(behind, sts, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "who-asks")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s" * 40)
    with opened(**behind | {"region": ""}, sts_endpoint_url=sts.url, role_arn=ROLE) as driver:
        assert works(driver)
    assert "Credential=who-asks/" in sts.asked[0]["by"]
    assert sts.asked[0]["RoleSessionName"] == "pulsar-offload"


def test_credentials_of_a_role_are_renewed_before_they_expire(behind, front, sts):
    sts.valid_s = 5
    with opened(**behind | ASKING, sts_endpoint_url=sts.url) as driver:
        assert works(driver)
        assert len(sts.asked) > 1, "what is about to expire is not used on"
        sts.valid_s = 3600
        assert works(driver)
        asked, before = len(sts.asked), len(front.change.tokens)
        assert works(driver)
        assert len(sts.asked) == asked
    # botocore's, which writes; obstore, which reads, may use others for five minutes
    assert front.change.tokens[before] == f"{TOKEN}-{asked}"


def test_credentials_that_have_expired_when_they_arrive_are_denied(behind, sts):
    sts.valid_s = -60
    with opened(**behind | ASKING, sts_endpoint_url=sts.url) as driver, pytest.raises(AccessDeniedError):
        driver.stat("k")


def test_a_role_that_must_not_be_assumed_is_denied(behind):
    body = b"<ErrorResponse><Error><Code>AccessDenied</Code><Message>no</Message></Error></ErrorResponse>"
    with (
        Front(rule=lambda _: Answer(status=403, body=body)) as service,
        opened(**behind | ASKING, sts_endpoint_url=service.url) as driver,
        pytest.raises(AccessDeniedError, match="role_arn") as caught,
    ):
        driver.stat("k")
    assert "hunter2secret" not in f"{caught.value!r}{caught.value.__cause__!r}"


def test_a_service_for_roles_that_is_down_may_be_asked_again(behind):
    with (
        Front(rule=lambda _: Answer(status=503)) as service,
        opened(**behind | ASKING, sts_endpoint_url=service.url) as driver,
        pytest.raises(StoreUnavailableError),
    ):
        driver.stat("k")


def test_a_web_identity_is_changed_for_credentials(behind, sts, monkeypatch, tmp_path):
    (tmp_path / "identity").write_text("an-identity-token")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "identity"))
    monkeypatch.setenv("AWS_ROLE_ARN", ROLE)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", sts.url)
    with opened(**behind) as driver:
        assert works(driver)
    (asked,) = sts.asked
    assert (asked["Action"], asked["by"]) == ("AssumeRoleWithWebIdentity", "nobody")
    assert (asked["RoleArn"], asked["WebIdentityToken"]) == (ROLE, "an-identity-token")


def test_obstore_uses_the_same_credentials(behind, front, sts):
    with opened(**behind | ASKING, sts_endpoint_url=sts.url) as driver:
        driver.write_index("k", b"data", "a/b", {}, False)
        requests = len(front.requests)
        assert driver.read_range("k", 1, 2) == b"at"
        assert driver.read_ranges([ByteRange(key="k", offset=0, length=4)]) == [b"data"]
    assert len(front.requests) - requests == 2, "obstore read both at once"
    assert set(front.change.tokens) == {f"{TOKEN}-1"}
    assert "aiobotocore" not in front.requests[-1].headers["user-agent"].lower()
    assert len(sts.asked) == 1


# --- a callable ------------------------------------------------------------------------------------


class Vending:
    """A callable that gives credentials, as a catalog that vends them: how often it was called, and how it ends."""

    def __init__(self, valid_s=3600):
        self.valid_s = valid_s
        self.calls = 0
        self.two_at_once = False
        self._meeting = Barrier(2)

    def __call__(self):
        self.calls += 1
        try:
            self._meeting.wait(0.02)
            self.two_at_once = True
        except BrokenBarrierError:
            self._meeting.reset()
        expires_at = None if self.valid_s is None else datetime.now(UTC) + timedelta(seconds=self.valid_s)
        given = {"access_key_id": TEMPORARY, "secret_access_key": "t" * 40, "token": f"{TOKEN}-{self.calls}"}
        return given | {"expires_at": expires_at}


@pytest.mark.parametrize("valid_s", [3600, None])
def test_a_callables_credentials_sign_every_request_and_are_kept(behind, front, valid_s):
    vending = Vending(valid_s)
    with opened(**behind, credentials=vending) as driver:
        assert vending.calls == 0
        assert works(driver)
        assert driver.read_ranges([ByteRange(key="k", offset=0, length=4)]) == [b"data"]
    assert set(front.change.tokens) == {f"{TOKEN}-1"}
    assert len(front.change.tokens) == len(front.requests)


def test_a_callable_is_called_again_before_its_credentials_expire_by_one_thread_at_once(behind, front):
    vending = Vending(valid_s=30)
    with opened(**behind, credentials=vending) as driver:
        driver.write_index("k", b"data", "a/b", {}, False)
        read = partial(driver.stat, "k")
        assert len(list(bounded_map(lambda _: read(), range(32), at_once=8, name="looks"))) == 32
        assert vending.calls > 1
        assert not vending.two_at_once
        vending.valid_s = 3600
        driver.stat("k")
        before, requests = vending.calls, len(front.change.tokens)
        driver.write_index("l", b"data", "a/b", {}, False)
        assert vending.calls == before
    assert set(front.change.tokens[requests:]) == {f"{TOKEN}-{before}"}


def test_a_callables_credentials_may_assume_a_role(behind, front, sts):
    with opened(**behind, credentials=Vending(), role_arn=ROLE, sts_endpoint_url=sts.url) as driver:
        assert works(driver)
    assert f"Credential={TEMPORARY}/" in sts.asked[0]["by"]


def fails(error):
    def vend():
        raise error

    return vend


@pytest.mark.parametrize(
    ("call", "kind", "match"),
    [
        (Vending(valid_s=-60), AccessDeniedError, "no usable credentials"),
        (fails(KeyError("hunter2secret")), AccessDeniedError, "'credentials' failed: found KeyError"),
        (fails(PermissionError("hunter2secret")), AccessDeniedError, "failed: found PermissionError"),
        (
            fails(ConnectionResetError("hunter2secret")),
            StoreUnavailableError,
            "failed: found ConnectionReset",
        ),
        (fails(AccessDeniedError("the catalog denies it")), AccessDeniedError, "the catalog denies it"),
        (lambda: None, OptionError, "returned no mapping"),
        (lambda: {"access_key_id": "hunter2secret"}, OptionError, "returned no 'secret_access_key'"),
        (
            lambda: Vending()() | {"token": b"hunter2secret"},
            OptionError,
            "'token' that it returned is no text",
        ),
        (lambda: Vending()() | {"expires_at": datetime(2026, 1, 1)}, OptionError, "no datetime with a zone"),
        ("no_such_module:vend", OptionError, "cannot be imported.*ModuleNotFoundError"),
        ("json:no_such_function", OptionError, "cannot be imported.*AttributeError"),
        ("json:__name__", OptionError, "is no callable"),
    ],
)
def test_a_callable_that_gives_no_credentials_is_an_error_without_its_secrets(behind, call, kind, match):
    with opened(**behind, credentials=call) as driver, pytest.raises(kind, match=match) as caught:
        driver.stat("k")
    assert "hunter2secret" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"credentials": "vend"}, "no callable: expected .*module:function"),
        ({"credentials": 1}, "no callable"),
        ({"credentials": "m:f", "profile": "p"}, "exclude each other"),
        ({"credentials": "m:f", "access_key_id": "a", "secret_access_key": "b"}, "exclude each other"),
        ({"credentials": "m:f", "anonymous": "true"}, "exclude each other"),
    ],
)
def test_a_callable_is_one_and_the_only_credentials(place, options, match):
    with pytest.raises(OptionError, match=match):
        opened(**place, **options)


def test_a_callable_by_its_place_is_called_by_other_processes(versitygw, bucket, tmp_path):
    (tmp_path / "vending.py").write_text(
        f"""
from datetime import UTC, datetime, timedelta

def vend():
    expires_at = datetime.now(UTC) + timedelta(seconds=30)
    return {{
        "access_key_id": {versitygw.root.access_key!r}, "secret_access_key": {versitygw.root.secret_key!r},
        "expires_at": expires_at,
    }}
"""
    )
    place = [
        f"s3://{bucket}/tier",
        "-o",
        f"endpoint_url={versitygw.endpoint}",
        "-o",
        f"region={versitygw.region}",
    ]
    done = subprocess.run(
        [COMMAND, "doctor", *place, "-o", "credentials=vending:vend", "--bytes", "1000000"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    given = {"endpoint_url": versitygw.endpoint, "credentials": "vending:vend"}
    tier = pickle.loads(pickle.dumps(open_store(place[0], **given)))
    assert tier.spec.options["credentials"] == "vending:vend"
