"""Tiers by name: the user's file, the environment, what goes before what, and errors that name the place."""

from __future__ import annotations

import os

import pytest

from offload_core.metadata.catalogue import open_tier
from offload_core.storage.named_tiers import TIER_VARIABLE, named_tiers, tiers_file
from offload_core.storage.tier import open_like, open_store
from offload_core.writing.configuration import load_configuration
from offload_hooks.errors import OptionError, UnknownPluginError

SECRET = "hunter2secret"


@pytest.fixture(autouse=True)
def no_tiers(tmp_path, monkeypatch):
    """A user without named tiers."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    for name in os.environ:
        if name.startswith(TIER_VARIABLE):
            monkeypatch.delenv(name)


@pytest.fixture
def written():
    """Write the user's file, private."""

    def write(text, mode=0o600):
        path = tiers_file()
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    return write


def location(*args, **options):
    return open_store(*args, **options).describe().location


def test_the_file_is_in_the_users_folder_of_settings(monkeypatch, tmp_path):
    assert tiers_file() == tmp_path / "settings/pulsar-offload.toml"
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tiers_file() == tmp_path / ".config/pulsar-offload.toml"


def test_a_name_stands_for_a_url_with_options_and_layers(written):
    written("""
        [tiers.prod]
        url = "s3://bucket/prefix"
        layers = ["retry:attempts=7"]
        [tiers.prod.options]
        region = "eu-west-1"
        client_kwargs.endpoint_url = "http://127.0.0.1:1"
    """)
    tier = open_store("prod")
    assert tier.describe().location == "s3://bucket/prefix/"
    assert tier.describe().driver_metadata["serviceEndpoint"] == "http://127.0.0.1:1"
    assert tier.describe().driver_metadata["region"] == "eu-west-1"
    assert [(each.name, each.options) for each in tier.spec.layers] == [("retry", {"attempts": "7"})]
    assert open_store("prod", layers=[]).spec.layers == ()


def test_a_name_stands_for_a_driver_with_options(written, tmp_path):
    written(f'tiers.mine = {{driver = "local", options = {{root = "{tmp_path}"}}}}')
    assert location("mine") == tmp_path.as_uri()


def test_the_environment_names_tiers_with_options(monkeypatch, written):
    monkeypatch.setenv("PULSAR_OFFLOAD_TIER_EU_PROD", "s3://bucket/prefix")
    monkeypatch.setenv("PULSAR_OFFLOAD_TIER_EU_PROD__REGION", "eu-west-1")
    assert open_store("eu-prod").describe().driver_metadata["region"] == "eu-west-1"
    load_configuration()  # these are no unknown settings of a service


def test_no_option_of_the_file_goes_to_the_url_of_the_environment(monkeypatch, written):
    options = f'{{access_key_id = "id", secret_access_key = "{SECRET}"}}'
    written(f'tiers.prod = {{url = "s3://bucket/prefix", options = {options}}}')
    monkeypatch.setenv("PULSAR_OFFLOAD_TIER_PROD", "s3://other")
    assert open_store("prod").spec.options == {"bucket": "other"}
    assert SECRET not in repr(named_tiers())


def test_paths_urls_and_drivers_keep_their_meaning(written, tmp_path, monkeypatch):
    written('tiers.prod.url = "s3://bucket/prefix"')
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prod").mkdir()
    assert location("prod") == "s3://bucket/prefix/"
    assert location("./prod") == location(tmp_path / "prod") == (tmp_path / "prod").as_uri()
    assert location("file:prod") == (tmp_path / "prod").as_uri()
    assert location("local", root="/x") == "file:///x"
    with pytest.raises(UnknownPluginError, match="the driver 'prod'"):
        open_store("prod", driver="prod")
    with pytest.raises(OptionError, match="two drivers are named"):
        open_store("prod", driver="s3")


def test_a_driver_is_opened_whatever_the_file_is(written):
    written("[")
    assert location("local", root="/x") == location("/x") == "file:///x"


def test_a_tier_of_a_drivers_name_is_refused(written):
    path = written('tiers.prod.url = "s3://a"\ntiers.local.url = "s3://b"')
    with pytest.raises(OptionError, match=rf"the tier 'local' has the name of a driver: found {path}"):
        open_store("prod")


def test_an_option_that_a_tier_has_already_is_refused_with_another_value(written):
    written('tiers.prod = {url = "s3://bucket/prefix", options = {region = "eu-west-1"}}')
    assert open_store("prod", region="eu-west-1")
    for again in ({"region": "us-east-1"}, {"storage_options": {"region": "us-east-1"}}):
        with pytest.raises(OptionError, match="'region' is given twice, by the tier 'prod' and by"):
            open_store("prod", **again)
    with pytest.raises(OptionError, match="'region' twice, once as 'AWS_REGION'"):
        open_store("prod", AWS_REGION="us-east-1")


def test_places_beside_a_tier_get_its_options_and_named_ones_their_own(written):
    written("""
        [tiers]
        prod = {url = "s3://bucket/prefix", options = {region = "eu-west-1"}}
        archive = {url = "s3://archive", options = {region = "us-east-1"}}
    """)
    with open_tier("prod") as tier:
        assert tier.options == {"region": "eu-west-1"}
        (other,) = tier.also("archive").store.spec.others
        schemas = open_like(tier.store, "s3://schemas", **tier.options)
    assert other.options == {"bucket": "archive", "region": "us-east-1"}
    assert schemas.spec.options == {"bucket": "schemas", "region": "eu-west-1"}


def test_an_unknown_name_is_answered_by_those_that_there_are(written):
    written('tiers.prod.url = "s3://a"\ntiers.archive.url = "s3://b"')
    with pytest.raises(
        UnknownPluginError,
        match=r"no driver or tier of this name. Did you mean the tier 'prod'\? Tiers: archive, prod\.",
    ):
        open_store("prd")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[tiers.prod\n", r"no TOML: .*toml: found .*line 1"),
        ('[tier.prod]\nurl = "s3://a"', r"at tier: there is no such section"),
        ('tiers = ["s3://a"]', r"at tiers: it is no table"),
        ('tiers.prod = "s3://a"', r"at tiers.prod: it is no table"),
        ("tiers.prod = {}", r"at tiers.prod: it names no place"),
        ("tiers.prod.url = 1", r"at tiers.prod.url: it is no text"),
        ('tiers.prod.url = "bucket/prefix"', r"at tiers.prod.url: it is neither"),
        ('tiers.prod.url = "./x"', r"at tiers.prod.url: it is neither"),
        ('tiers.Prod.url = "s3://a"', r"at tiers.Prod: it is no name"),
        ('tiers.eu_prod.url = "s3://a"', r"at tiers.eu_prod: it is no name"),
        (
            'tiers.prod = {url = "s3://a", region = "x"}',
            r"at tiers.prod.region: there is no such field.*options\]",
        ),
        ('tiers.prod = {url = "s3://a", layers = "retry"}', r"at tiers.prod.layers: it is no list"),
        ('tiers.prod = {url = "s3://a", options = ["x"]}', r"at tiers.prod.options: it is no table"),
    ],
)
def test_a_wrong_file_is_refused_with_its_name_and_the_place(written, text, fault):
    path = written(text)
    with pytest.raises(OptionError, match=fault) as caught:
        open_store("prod")
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("variables", "fault"),
    [
        ({"PULSAR_OFFLOAD_TIER_": "s3://a"}, "PULSAR_OFFLOAD_TIER_ names no tier"),
        ({"PULSAR_OFFLOAD_TIER_PROD": "bucket"}, "PULSAR_OFFLOAD_TIER_PROD is neither"),
        ({"PULSAR_OFFLOAD_TIER_PROD__REGION": "x"}, "not where it is: expected PULSAR_OFFLOAD_TIER_PROD"),
    ],
)
def test_a_wrong_variable_is_refused_by_its_name(monkeypatch, variables, fault):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(OptionError, match=fault):
        open_store("prod")


@pytest.mark.parametrize("options", ['{secret_access_key = "x"}', '{storage_options = {password = "x"}}'])
def test_a_file_with_secrets_that_any_user_can_read_is_refused(written, options):
    text = f'tiers.prod = {{url = "fsspec+sftp://host/tier", options = {options}}}'
    path = written(text, 0o644)
    with pytest.raises(OptionError, match=rf"holds secrets.*Run: chmod go-rwx {path}"):
        named_tiers()
    written(text, 0o640)
    assert named_tiers()
    written('tiers.prod = {url = "s3://a", options = {region = "x"}}', 0o644)
    assert named_tiers()


def test_a_file_that_is_no_text_is_an_error(written):
    path = written("")
    path.write_bytes(b"\xff")
    with pytest.raises(OptionError, match=f"cannot be read: found {path}: UnicodeDecodeError"):
        named_tiers()
