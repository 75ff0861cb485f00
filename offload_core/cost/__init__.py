"""What it costs to keep, to have written, to scan and to move what is offloaded, by a file of prices."""

from offload_core.cost.charges import Money, money_of, month_of_storage, offload_requests
from offload_core.cost.prices import Prices, StorageClass, Tariff, example_names, load_prices
from offload_core.cost.savings import Saving, weigh
from offload_core.cost.stored import Stored, by_topic, survey_stored

__all__ = [
    "Money",
    "Prices",
    "Saving",
    "StorageClass",
    "Stored",
    "Tariff",
    "by_topic",
    "example_names",
    "load_prices",
    "money_of",
    "month_of_storage",
    "offload_requests",
    "survey_stored",
    "weigh",
]
