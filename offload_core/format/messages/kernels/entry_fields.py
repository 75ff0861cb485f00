"""Columns of the int64 tables that the kernels fill with facts of entries and messages.

Spans are a byte offset and a length; a length of −1 means that there is none. Offsets are into the block, but for
messages whose flags show that they are into the scratch buffer of decompressed payloads.
"""

from __future__ import annotations

# --- one row per entry -------------------------------------------------------------------------
E_PAYLOAD, E_PAYLOAD_LENGTH = 0, 1
E_FLAGS = 2
E_COMPRESSION, E_UNCOMPRESSED_SIZE = 3, 4
E_BATCH_SIZE = 5
E_PUBLISH_TIME, E_EVENT_TIME = 6, 7
E_SEQUENCE_ID = 8
E_PRODUCER, E_PRODUCER_LENGTH = 9, 10
E_KEY, E_KEY_LENGTH = 11, 12
E_ORDERING_KEY, E_ORDERING_KEY_LENGTH = 13, 14
E_SCHEMA_VERSION, E_SCHEMA_VERSION_LENGTH = 15, 16
E_METADATA, E_METADATA_END = 17, 18
E_PROPERTIES = 19
E_MARKER_TYPE = 20
E_TXN_LEAST, E_TXN_MOST = 21, 22
E_UUID, E_UUID_LENGTH = 23, 24
E_CHUNK_ID, E_CHUNKS, E_CHUNKED_SIZE = 25, 26, 27
E_BROKER_TIMESTAMP, E_BROKER_INDEX = 28, 29
E_ENCRYPTION_ALGORITHM, E_ENCRYPTION_ALGORITHM_LENGTH = 30, 31
E_ENCRYPTION_PARAM, E_ENCRYPTION_PARAM_LENGTH = 32, 33
E_ENCRYPTION_KEYS = 34
E_REPLICATED_FROM, E_REPLICATED_FROM_LENGTH = 35, 36
E_REPLICATE_TO = 37
E_DELIVER_AT_TIME = 38
E_TXN_STATE = 39
E_FIELDS = 40

# --- one column per message: each fact of all messages lies together ---------------------------
M_ENTRY = 0
M_VALUE, M_VALUE_LENGTH = 1, 2
M_BATCH_INDEX = 3
M_EVENT_TIME = 4
M_SEQUENCE_ID = 5
M_KEY, M_KEY_LENGTH = 6, 7
M_ORDERING_KEY, M_ORDERING_KEY_LENGTH = 8, 9
M_METADATA, M_METADATA_END = 10, 11
M_PROPERTIES = 12
M_FLAGS = 13
M_FIELDS = 14

# --- flags, of entries and messages ------------------------------------------------------------
KEY_IS_BASE64 = 1
NULL_VALUE = 2
NULL_KEY = 4
VALUE_IN_SCRATCH = 8
METADATA_IN_SCRATCH = 16
VALUE_IS_RAW = 32

# --- actions for an entry's payload ------------------------------------------------------------
READ, PASS_ON, LEAVE_OUT = 0, 1, 2

# --- states of a transaction's entry, and the substitute for the type of a hidden marker ---
COMMITTED, ABORTED, OPEN = 0, 1, 2
HIDDEN = 1 << 32

# --- field numbers of `properties`, by whose metadata it is ------------------------------------
ENTRY_PROPERTIES_TAG = 4 << 3 | 2
SINGLE_PROPERTIES_TAG = 1 << 3 | 2
"""Tags (field number and wire type) of a property in `MessageMetadata` and in `SingleMessageMetadata`."""
