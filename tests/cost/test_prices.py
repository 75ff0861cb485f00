"""Files of prices: the examples, what a file may say, and what is refused."""

import json

import pytest

from offload_core.maintenance.inventory.prices import example_names, load_prices
from offload_hooks.errors import ObjectNotFoundError, OptionError, StoreError

LEAST = {
    "name": "ours",
    "as_of": "2026-11-01",
    "currency": "EUR",
    "default_class": "warm",
    "classes": {"warm": {"storage_per_gb_month": 0.5}},
}


def written(folder, **changes):
    path = folder / "prices.json"
    path.write_text(
        json.dumps({name: value for name, value in (LEAST | changes).items() if value is not None})
    )
    return path


def test_each_example_is_marked_and_dated():
    assert example_names() == ["example:aws-s3", "example:azure-blob", "example:google-cloud-storage"]
    for name in example_names():
        prices = load_prices(name)
        assert prices.is_example
        assert prices.as_of.startswith("20")
        assert prices.currency == "USD"
        months = [each.storage_per_gb_month for each in prices.classes.values()]
        assert months == sorted(months, reverse=True)


def test_a_file_says_what_it_says_and_no_more_costs_anything(tmp_path):
    tariff = load_prices(written(tmp_path)).tariff()
    assert (tariff.class_name, tariff.for_storage(3 << 30), tariff.for_egress(1 << 30)) == ("warm", 1.5, 0)


def test_toml_as_well(tmp_path):
    path = tmp_path / "prices.toml"
    path.write_text(
        'name = "ours"\nas_of = "2026-11-01"\ncurrency = "EUR"\ndefault_class = "warm"\ngb_bytes = 1000000000\n'
        "[classes.warm]\nstorage_per_gb_month = 2\n"
    )
    assert load_prices(path).tariff().for_storage(5e8) == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"currency": None}, "currency"),
        ({"classes": {}}, "classes"),
        ({"classes": {"warm": {"storage_per_gb_month": -1}}}, "classes.warm.storage_per_gb_month"),
        ({"classes": {"warm": {"storage_per_gb_month": "NaN"}}}, "classes.warm.storage_per_gb_month"),
        ({"classes": {"warm": {"storage_per_gb_month": 1, "puts": 2}}}, "puts"),
        ({"default_class": "cold"}, "no such storage class"),
        ({"egress": 3}, "egress"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, changes, said):
    with pytest.raises(OptionError, match=said):
        load_prices(written(tmp_path, **changes))


@pytest.mark.parametrize("text", [b"", b"[", b"\xff\xfe", b"{" * 100_000, b"#" * (1 << 20) + b"#"])
@pytest.mark.parametrize("name", ["prices.json", "prices.toml"])
def test_what_is_no_file_of_prices(tmp_path, name, text):
    path = tmp_path / name
    path.write_bytes(text)
    with pytest.raises(OptionError):
        load_prices(path)


def test_a_class_and_a_file_that_there_are_not(tmp_path):
    with pytest.raises(OptionError, match="expected one of warm, found cold"):
        load_prices(written(tmp_path)).tariff("cold")
    with pytest.raises(OptionError, match="example:aws-s3"):
        load_prices("example:../../secret")
    with pytest.raises(ObjectNotFoundError, match="no such file"):
        load_prices(tmp_path / "none.toml")
    with pytest.raises(StoreError, match="cannot be read"):
        load_prices(tmp_path)
