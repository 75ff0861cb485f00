"""A file of prices, TOML or JSON: what a store charges for keeping, asking and taking away. Source: docs/cost.md.

Prices are those of the file's author. The examples that come along have their dates in their names; check them
before you decide anything by them.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from offload_hooks.errors import ObjectNotFoundError, OptionError, StoreError
from offload_hooks.json_text import read_json

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

EXAMPLE = "example:"
"""Prefix of the name of a file that comes along."""

MAX_FILE_BYTES = 1 << 20

Price = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1, max_length=200)]


class StorageClass(BaseModel):
    """Prices of one storage class; a price that a file does not have is 0.

    Attributes:
        storage_per_gb_month: for stored data, a month.
        put_per_1000, get_per_1000, list_per_1000: requests; `head_per_1000` is `get_per_1000` if it is missing.
        retrieval_per_gb: for data that is read.
        minimum_days: data that is deleted earlier is charged for this time.
        minimum_object_bytes: a smaller object is paid for as one of this size.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    storage_per_gb_month: Price
    put_per_1000: Price = 0.0
    get_per_1000: Price = 0.0
    head_per_1000: Price | None = None
    list_per_1000: Price = 0.0
    retrieval_per_gb: Price = 0.0
    minimum_days: Annotated[int, Field(ge=0, le=36_500)] = 0
    minimum_object_bytes: Annotated[int, Field(ge=0, le=1 << 40)] = 0


class Prices(BaseModel):
    """A file of prices.

    Attributes:
        name, as_of, source: what they are, of which day, and from where; shown with each amount.
        is_example: whether it is one of those that come along, and must be checked.
        currency: of all prices in the file.
        gb_bytes: what the provider calls a GB.
        egress_per_gb: for what leaves the provider's network, or the region.
        default_class: of objects without a storage class.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Text
    as_of: Text
    source: str = ""
    is_example: bool = False
    currency: Text
    gb_bytes: Annotated[int, Field(ge=1, le=1 << 40)] = 1 << 30
    egress_per_gb: Price = 0.0
    default_class: Text
    classes: Annotated[dict[str, StorageClass], Field(min_length=1)]

    def tariff(self, name: str | None = None) -> Tariff:
        """The prices of a storage class, the default one without a name. `OptionError`: there is none."""
        chosen = self.default_class if name is None else name
        if chosen not in self.classes:
            raise OptionError(
                f"the prices {self.name!r} have no such storage class",
                expected=f"one of {', '.join(self.classes)}",
                found=chosen,
            )
        return Tariff(prices=self, class_name=chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tariff:
    """The prices of one storage class of a file."""

    prices: Prices
    class_name: str

    @property
    def of_class(self) -> StorageClass:
        """Return what the class costs."""
        return self.prices.classes[self.class_name]

    def for_storage(self, count: float) -> float:
        """Price of storing bytes for a month."""
        return count / self.prices.gb_bytes * self.of_class.storage_per_gb_month

    def for_retrieval(self, count: float) -> float:
        """Price of reading bytes."""
        return count / self.prices.gb_bytes * self.of_class.retrieval_per_gb

    def for_egress(self, count: float) -> float:
        """Price of bytes that leave the network."""
        return count / self.prices.gb_bytes * self.prices.egress_per_gb


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """The prices of all storage classes of a file, by the words that stores have for them.

    Attributes:
        given: the class of all objects, whatever the store reports; None for the store's.

    Raises:
        OptionError: the file has no such class.
    """

    prices: Prices
    given: str | None = None

    def __post_init__(self) -> None:
        self.prices.tariff(self.given)

    def knows(self, storage_class: str) -> bool:
        """Return whether a store's word is a class of the file; not to be known (empty) is to be of the default one."""
        return self.given is not None or not storage_class or self._named(storage_class) is not None

    def of(self, storage_class: str) -> Tariff:
        """The prices of a store's storage class; of the default one if the file does not have it."""
        return self.prices.tariff(self._named(storage_class) if self.given is None else self.given)

    def _named(self, storage_class: str) -> str | None:
        word = storage_class.casefold()
        return next((name for name in self.prices.classes if name.casefold() == word), None)


def example_names() -> list[str]:
    """The files of prices that come along, as they are named to `load_prices`."""
    folder = files("offload_core.maintenance.inventory").joinpath("example_prices")
    return sorted(
        EXAMPLE + each.name.removesuffix(".toml") for each in folder.iterdir() if each.name.endswith(".toml")
    )


def load_prices(place: str | os.PathLike[str]) -> Prices:
    """The prices of a file (`.json` is JSON, any other is TOML), or of an example: `example:aws-s3`.

    Raises:
        OptionError: it does not follow docs/cost.md.
        ObjectNotFoundError: it is not there. StoreError: it cannot be read.
    """
    name = os.fspath(place)
    if name.startswith(EXAMPLE):
        if name not in example_names():
            raise OptionError(
                "there is no such example of prices", expected=", ".join(example_names()), found=name
            )
        resource = files("offload_core.maintenance.inventory").joinpath(
            "example_prices", name.removeprefix(EXAMPLE) + ".toml"
        )
        return parse_prices(resource.read_text(), name)
    try:
        with Path(name).open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError as error:
        raise ObjectNotFoundError("there is no such file of prices", key=name) from error
    except OSError as error:
        raise StoreError("a file of prices cannot be read", key=name, found=error.strerror) from error
    if len(data) > MAX_FILE_BYTES:
        raise OptionError(
            "a file of prices is too large", expected=f"at most {MAX_FILE_BYTES} bytes", found=name
        )
    try:
        return parse_prices(data.decode(), name)
    except UnicodeDecodeError as error:
        raise OptionError("a file of prices is no UTF-8", found=name) from error


def parse_prices(text: str, name: str) -> Prices:
    """The prices in a text, of the file `name`; errors as of `load_prices`."""
    try:
        prices = Prices.model_validate(_values(text, name))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise OptionError(f"a file of prices is wrong: {place}: {first['msg']}", found=name) from None
    prices.tariff()
    return prices


def _values(text: str, name: str) -> Any:
    if name.endswith(".json"):
        return read_json(text, "a file of prices", error=OptionError, key=name)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"a file of prices is none: {error}", found=name) from None
