"""Turn bytes into values and values into bytes, without I/O: objects, messages, schemas."""
