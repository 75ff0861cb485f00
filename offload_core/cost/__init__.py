"""Costs to keep, to have written, to scan and to move what is offloaded, by a file of prices."""

from offload_core.cost.charges import (
    Money,
    Saving,
    money_of,
    month_of_storage,
    offload_requests,
    weigh,
    weigh_classes,
)
from offload_core.cost.prices import Prices, Rates, StorageClass, Tariff, example_names, load_prices
from offload_core.cost.stored import Stored, by_class, by_topic, survey_stored

__all__ = [
    "Money",
    "Prices",
    "Rates",
    "Saving",
    "StorageClass",
    "Stored",
    "Tariff",
    "by_class",
    "by_topic",
    "example_names",
    "load_prices",
    "money_of",
    "month_of_storage",
    "offload_requests",
    "survey_stored",
    "weigh",
    "weigh_classes",
]
