"""Topics' schemas, and payloads as typed columns."""

from offload_core.schemas.choosing import SchemaSource, choose_payloads, open_provider
from offload_core.schemas.history import history_from_rest, schema_to_json
from offload_core.schemas.payloads import CORRUPT_RECORD, PayloadDecoder, Payloads, decoded
from offload_core.schemas.saved import FOLDER, SavedSchemas, saved_in

__all__ = [
    "CORRUPT_RECORD",
    "FOLDER",
    "PayloadDecoder",
    "Payloads",
    "SavedSchemas",
    "SchemaSource",
    "choose_payloads",
    "decoded",
    "history_from_rest",
    "open_provider",
    "saved_in",
    "schema_to_json",
]
