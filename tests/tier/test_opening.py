from __future__ import annotations

from pathlib import Path

import pytest

from offload_core.storage.tier import open_like, open_store
from offload_hooks.errors import BrokenPluginError, OptionError, UnknownPluginError

DRIVERS = "pulsar_offload.drivers"
SCHEMES = "pulsar_offload.url_schemes"


def location(*args, **options):
    return open_store(*args, **options).describe().location


def test_a_file_url_opens_the_local_driver():
    tier = open_store("file:///data/a%20b")
    assert (tier.describe().name, tier.describe().location) == ("local", "file:///data/a%20b")
    assert location("FILE:///data") == "file:///data"
    assert location("file://localhost/data") == "file:///data"


@pytest.mark.parametrize("path", ["/data/x", "/data/a:b", "/data/a b", "/data/a?b#c%20", "/data/./x/../x"])
def test_an_absolute_path_is_a_file(path):
    assert location(path) == Path(path.replace("/./x/..", "")).as_uri()


@pytest.mark.parametrize("path", ["./x", "x/y", ".", "file:x", "./local", "x/"])
def test_a_relative_path_is_a_file_under_the_working_directory(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tail = path.removeprefix("file:").removeprefix("./").removeprefix(".").rstrip("/")
    assert location(path) == tmp_path.joinpath(tail).as_uri()


def test_the_parent_and_the_home_directory_can_be_meant(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert location("~/x") == tmp_path.joinpath("x").as_uri()
    monkeypatch.chdir(tmp_path)
    assert location("..") == tmp_path.parent.as_uri()
    assert location("../z") == tmp_path.parent.joinpath("z").as_uri()
    assert location(Path("local")) == tmp_path.joinpath("local").as_uri()


def test_a_drivers_name_takes_options_only(tmp_path):
    assert location("local", root=str(tmp_path)) == tmp_path.as_uri()
    assert location("local", root=tmp_path, driver="local") == tmp_path.as_uri()


def test_a_bare_word_is_a_drivers_name_even_if_a_directory_has_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tmp_path.joinpath("bucket").mkdir()
    with pytest.raises(UnknownPluginError, match=r"If the directory is meant, write \./bucket"):
        open_store("bucket")


def test_a_bare_word_that_is_neither_is_called_a_directory_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnknownPluginError, match=r"there is no directory 's33', and no driver.*mean 's3'"):
        open_store("s33")


def test_wrong_options_are_named_with_those_that_there_are(install, module_name, driver_source):
    install("acme", {DRIVERS: {"acme": f"{module_name}:Driver"}}, {module_name: driver_source})
    with pytest.raises(
        OptionError, match=r"takes no option 'secretkey'.*Did you mean 'secret_key'"
    ) as caught:
        open_store("acme", root="/x", secretkey="hunter2")
    assert "Its options: root (required), secret_key, retries" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(OptionError, match="needs the option 'root'"):
        open_store("acme")


def test_a_driver_may_take_any_option(install, module_name, tmp_path):
    source = """
        from offload_drivers.local import LocalDriver
        class Driver(LocalDriver):
            def __init__(self, root, **storage_options):
                super().__init__(root)
    """
    install("any", {DRIVERS: {"any": f"{module_name}:Driver"}}, {module_name: source})
    assert location("any", root=str(tmp_path), anything=1) == tmp_path.as_uri()


def test_another_driver_may_read_the_url(install, module_name, driver_source):
    install("acme", {DRIVERS: {"acme": f"{module_name}:Driver"}}, {module_name: driver_source})
    tier = open_store("file:///data/x", driver="acme", retries=5)
    assert repr(tier) == "<Tier acme at file:///data/x>"
    assert repr(open_store("/data/x", driver="acme")) == "<Tier acme at file:///data/x>"


def test_an_option_given_twice_must_be_the_same():
    assert location("file:///data/x", root="/data/x") == "file:///data/x"
    with pytest.raises(OptionError, match="'root' is given twice"):
        open_store("file:///data/x", root="/data/y")


def test_two_drivers_cannot_be_named():
    with pytest.raises(OptionError, match="two drivers are named"):
        open_store("local", driver="other", root="/x")


@pytest.mark.parametrize(
    "url", ["", "file:", "file://", "file://host/x", "file:///a?b", "file:///a#b", "file:///a%00b"]
)
def test_what_is_no_place_of_this_machine_is_refused(url):
    with pytest.raises(OptionError):
        open_store(url)


@pytest.mark.parametrize("root", ["", "x", "./x", "/a\0b", b"/x"])
def test_a_root_must_be_an_absolute_path(root):
    with pytest.raises(OptionError, match="'root'"):
        open_store("local", root=root)


def test_a_driver_without_urls_says_so(install, module_name):
    install(
        "mute", {DRIVERS: {"mute": f"{module_name}:D"}}, {module_name: "class D:\n  hook_spec_version = 1"}
    )
    with pytest.raises(OptionError, match="takes no URL"):
        open_store("file:///x", driver="mute")


def test_a_driver_that_fails_on_its_url_does_not_show_it(install, module_name):
    source = """
        class D:
            hook_spec_version = 1
            @classmethod
            def options_from_url(cls, url):
                raise ValueError(url)
    """
    entries = {DRIVERS: {"u": f"{module_name}:D"}, SCHEMES: {"u": f"{module_name}:D"}}
    install("u", entries, {module_name: source})
    with pytest.raises(BrokenPluginError, match="found ValueError") as caught:
        open_store("u://user:hunter2@host/x")
    assert "hunter2" not in str(caught.value)


def test_layers_are_a_list_of_known_names(tmp_path):
    with pytest.raises(UnknownPluginError, match="the layer 'nosuch'"):
        open_store(tmp_path, layers=["nosuch"])
    with pytest.raises(OptionError, match="layers is a list"):
        open_store(tmp_path, layers="retry")


def test_wrong_options_of_a_layer_are_refused(install, module_name, tmp_path):
    source = "def make(rest, attempts=3): ..."
    install("l", {"pulsar_offload.layers": {"again": f"{module_name}:make"}}, {module_name: source})
    with pytest.raises(
        OptionError, match=r"the layer 'again' takes no option 'atempts'.*Its options: attempts"
    ):
        open_store(tmp_path, layers=[("again", {"atempts": 1})])


def test_a_driver_is_opened_under_its_default_layers_unless_others_are_named(install, module_name):
    source = """
        from offload_drivers.local import LocalDriver

        class Driver(LocalDriver):
            default_layers = ("quiet",)

        class Layer:
            def __init__(self, rest):
                pass
    """
    install(
        "layered",
        {
            "pulsar_offload.drivers": {"layered": f"{module_name}:Driver"},
            "pulsar_offload.layers": dict.fromkeys(("quiet", "other"), f"{module_name}:Layer"),
        },
        {module_name: source},
    )
    assert repr(open_store("layered", root="/x")).endswith("under quiet>")
    assert repr(open_store("layered", root="/x", layers=["other"])).endswith("under other>")
    assert "under" not in repr(open_store("layered", root="/x", layers=[]))


def test_another_place_of_the_same_driver_is_opened_with_the_same_options(tmp_path):
    tier = open_store("s3://bucket/tier", region="eu-west-1", endpoint_url="http://127.0.0.1:1")
    other = open_like(tier, "s3a://bucket/records", region="eu-west-1", endpoint_url="http://127.0.0.1:1")
    assert other.describe().location == "s3://bucket/records/"
    assert other.describe().driver_metadata["serviceEndpoint"] == "http://127.0.0.1:1"
    assert open_like(tier, tmp_path, region="eu-west-1").describe().location == tmp_path.as_uri()
