"""Where each ledger's copies are."""

from offload_core.catalogue.listing import list_catalogue
from offload_core.catalogue.model import Catalogue, Ledger, Piece, Problem, StoredObject, Topic
from offload_core.catalogue.topics import TopicName, parse_topic

__all__ = [
    "Catalogue",
    "Ledger",
    "Piece",
    "Problem",
    "StoredObject",
    "Topic",
    "TopicName",
    "list_catalogue",
    "parse_topic",
]
