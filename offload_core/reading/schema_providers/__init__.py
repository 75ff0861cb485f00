"""Schemas of topics, from where they are kept: saved beside a tier, given literally, or asked of a broker."""

from offload_core.reading.schema_providers.choosing import SchemaSource, choose_payloads, open_provider
from offload_core.reading.schema_providers.saved import FOLDER, SavedSchemas, saved_in

__all__ = ["FOLDER", "SavedSchemas", "SchemaSource", "choose_payloads", "open_provider", "saved_in"]
