from __future__ import annotations

import subprocess
import sys

import pytest

from offload_core.storage.tier import driver_of_scheme, load_driver, open_store
from offload_hooks.errors import BrokenPluginError, MissingExtraError, UnknownPluginError

DRIVERS = "pulsar_offload.drivers"
SCHEMES = "pulsar_offload.url_schemes"


def test_only_the_chosen_driver_is_imported(install, module_name, driver_source):
    exploding = "raise AssertionError('imported without being asked for')"
    install(
        "one",
        {DRIVERS: {"good": f"{module_name}:Driver", "bad": f"{module_name}_bad:Driver"}},
        {module_name: driver_source, f"{module_name}_bad": exploding},
    )
    assert load_driver("good").__name__ == "Driver"
    assert f"{module_name}_bad" not in sys.modules


def test_nothing_is_imported_until_a_driver_is_asked_for():
    code = "import sys, offload_core.storage.tier; print([m for m in sys.modules if m.startswith('offload_drivers')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_unknown_driver_lists_the_known_ones_and_the_closest():
    with pytest.raises(UnknownPluginError, match=r"'locla'.*Did you mean 'local'\? Known: .*local"):
        load_driver("locla")
    with pytest.raises(LookupError):
        load_driver("locla")


@pytest.mark.parametrize("name", ["nosuch", "Local", "", "local ", "offload_drivers.local:LocalDriver"])
def test_names_are_taken_as_they_are(name):
    with pytest.raises(UnknownPluginError):
        load_driver(name)


def test_an_unknown_scheme_lists_the_known_ones():
    with pytest.raises(UnknownPluginError, match=r"URL scheme 'nosuch'.*Known: .*file"):
        open_store("nosuch://bucket/prefix")


def test_a_scheme_names_the_driver_of_the_same_class(install, module_name):
    install(
        "aliases",
        {
            DRIVERS: {"thing": f"{module_name}:Driver [extra]"},
            SCHEMES: {"th": f"{module_name}:Driver", "thing": f"{module_name}:Driver"},
        },
        {module_name: "raise AssertionError('imported')"},
    )
    assert driver_of_scheme("th") == "thing"
    assert driver_of_scheme("TH") == "thing"
    assert driver_of_scheme("thing") == "thing"


def test_a_scheme_with_a_plus_is_served_by_what_offers_its_first_part_unless_it_is_offered_itself(
    install, module_name
):
    install(
        "families",
        {
            DRIVERS: {"family": f"{module_name}:Driver", "own": f"{module_name}:Own"},
            SCHEMES: {"family": f"{module_name}:Driver", "family+own": f"{module_name}:Own"},
        },
        {module_name: "raise AssertionError('imported')"},
    )
    assert driver_of_scheme("Family+Any") == "family"
    assert driver_of_scheme("family+own") == "own"
    with pytest.raises(UnknownPluginError, match=r"URL scheme 'nosuch\+any'"):
        driver_of_scheme("nosuch+any")


def test_a_scheme_whose_class_is_no_driver_is_broken(install, module_name):
    install("half", {SCHEMES: {"half": f"{module_name}:Driver"}}, {})
    with pytest.raises(BrokenPluginError, match="'half' of half names no driver"):
        driver_of_scheme("half")


@pytest.mark.parametrize(
    ("driver", "declared", "extras", "to_install"),
    [
        ("acme", " [fast-s3, tls]", ["acme", "fast-s3"], r"'acme-store\[fast-s3,tls\]'"),
        ("ac_me", "", ["x", "ac-me"], r"'acme-store\[ac-me\]'"),
        ("acme", "", ["other"], r"no_such_library_for_offload\b(?!\.)"),
    ],
    ids=["by the entry point", "by the driver's name", "no extra"],
)
def test_a_missing_library_names_the_extra_or_itself(
    install, module_name, driver, declared, extras, to_install
):
    entries = {DRIVERS: {driver: f"{module_name}:Driver{declared}"}}
    install("acme-store", entries, {module_name: "import no_such_library_for_offload.sub"}, extras=extras)
    with pytest.raises(MissingExtraError, match=f"pip install {to_install}") as caught:
        load_driver(driver)
    assert isinstance(caught.value, ImportError)
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)
    assert "'no_such_library_for_offload'" in str(caught.value)


def test_a_library_missing_from_a_namespace_package_is_a_missing_extra(install, module_name):
    site = install(
        "ns", {DRIVERS: {"ns": f"{module_name}:D"}}, {module_name: f"import {module_name}_ns.gone"}
    )
    (site / f"{module_name}_ns").mkdir()  # as `google` is there when only google-cloud-storage is missing
    with pytest.raises(MissingExtraError, match="pip install"):
        load_driver("ns")


def test_a_missing_library_is_noticed_when_the_driver_is_constructed(install, module_name, tmp_path):
    source = """
        class Driver:
            hook_spec_version = 1
            def __init__(self, root):
                import no_such_library_for_offload
    """
    install("late", {DRIVERS: {"late": f"{module_name}:Driver"}}, {module_name: source}, extras=["late"])
    assert load_driver("late").__name__ == "Driver"
    with pytest.raises(MissingExtraError, match=r"pip install 'late\[late\]'"):
        open_store("late", root=str(tmp_path))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import json.no_such_part", "ModuleNotFoundError"),
        ("from json import no_such_name", "ImportError"),
        ("1 / 0", "ZeroDivisionError"),
        ("raise SystemExit(3)", "SystemExit"),
        ("def broken(:", "SyntaxError"),
        ("", "AttributeError"),
    ],
)
def test_a_driver_that_cannot_be_imported_is_broken(install, module_name, source, found):
    install("sorry", {DRIVERS: {"sorry": f"{module_name}:Driver"}}, {module_name: source}, extras=["sorry"])
    with pytest.raises(
        BrokenPluginError, match=f"'sorry' of sorry cannot be loaded: found {found}"
    ) as caught:
        load_driver("sorry")
    assert type(caught.value.__cause__).__name__ == found


def test_a_driver_whose_own_module_is_gone_is_broken(install, module_name):
    install("gone", {DRIVERS: {"gone": f"{module_name}:Driver"}}, {}, extras=["gone"])
    with pytest.raises(BrokenPluginError, match="cannot be loaded"):
        load_driver("gone")


def test_two_distributions_of_one_driver_name_are_both_named(install, module_name, driver_source):
    for name in ("first-dist", "second-dist"):
        install(name, {DRIVERS: {"same": f"{module_name}:Driver"}}, {module_name: driver_source})
    with pytest.raises(BrokenPluginError, match="first-dist and second-dist"):
        load_driver("same")
    assert load_driver("local")  # what is not asked for does no harm


def test_one_distribution_found_twice_on_the_path_is_one(install, module_name, driver_source):
    for _ in range(2):
        install("twice", {DRIVERS: {"twice": f"{module_name}:Driver"}}, {module_name: driver_source})
    assert load_driver("twice").__name__ == "Driver"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("class D: hook_spec_version = 2", "pip install --upgrade pulsar-offload"),
        ("class D: pass", "hook_spec_version = 1"),
        ("class D: hook_spec_version = '1'", "does not say"),
        ("class D: hook_spec_version = True", "does not say"),
        ("class D: hook_spec_version = 0", "does not say"),
        ("def D(): ...", "not a class"),
    ],
)
def test_a_driver_must_be_a_class_that_fits_the_version_of_the_hooks(install, module_name, source, message):
    install("v", {DRIVERS: {"v": f"{module_name}:D"}}, {module_name: source})
    with pytest.raises(BrokenPluginError, match=message):
        load_driver("v")


def test_a_driver_that_fails_to_construct_does_not_show_its_options(install, module_name):
    source = """
        class Driver:
            hook_spec_version = 1
            def __init__(self, token):
                raise RuntimeError(f"bad {token}")
    """
    install("leaky", {DRIVERS: {"leaky": f"{module_name}:Driver"}}, {module_name: source})
    with pytest.raises(BrokenPluginError, match="cannot be constructed: found RuntimeError") as caught:
        open_store("leaky", token="hunter2")
    assert "hunter2" not in str(caught.value)
