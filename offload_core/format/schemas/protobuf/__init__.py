"""Protobuf: messages of a batch to Arrow columns, by tables of the message's fields."""
