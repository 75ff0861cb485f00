"""Turn payloads into typed columns, by the schemas of their topics."""

from offload_core.format.schemas.payloads import CORRUPT_RECORD, PayloadDecoder, Payloads, decoded
from offload_core.format.schemas.schema_history import history_from_rest, schema_to_json

__all__ = ["CORRUPT_RECORD", "PayloadDecoder", "Payloads", "decoded", "history_from_rest", "schema_to_json"]
