"""Deleting many objects by few requests."""

from __future__ import annotations

from collections.abc import Mapping

from offload_drivers.s3.connection import S3Connection
from offload_drivers.s3.errors import refusal, translated

_MOST_KEYS = 1000
"""Of one request: Amazon S3 API Reference, DeleteObjects."""

_ACTION = "delete"


def delete_objects(connection: S3Connection, bucket: str, keys: Mapping[str, str]) -> None:
    """Delete objects by their names in the bucket (with their keys, for errors); what is not there counts as gone."""
    names = list(keys)
    if len(names) == 1:
        with translated(_ACTION, bucket, keys[names[0]]):
            connection.call("delete_object", Key=names[0])
        return
    for start in range(0, len(names), _MOST_KEYS):
        wanted = [{"Key": name} for name in names[start : start + _MOST_KEYS]]
        with translated(_ACTION, bucket):
            answer = connection.call("delete_objects", Delete={"Objects": wanted, "Quiet": True})
        for fault in answer.get("Errors", ()):
            code, message = fault.get("Code", ""), fault.get("Message", "")
            if code != "NoSuchKey":
                raise refusal(_ACTION, bucket, keys.get(fault.get("Key", "")), code, message)
