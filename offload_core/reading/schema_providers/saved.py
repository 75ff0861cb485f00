"""Topics' schemas in files: beside a tier, in a directory, or in one file.

In a directory the file of a topic is `<tenant>/<namespace>/<topic>.schemas.json`, the topic's name URL-encoded, and its
end a digest if it is too long for a file system (`catalogue.topics`).
Source: docs/formats/schemas.md.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from offload_core.format.schemas.history import MOST_BYTES, parse_saved, saved_bytes
from offload_core.metadata.catalogue import TopicName, parse_topic
from offload_core.metadata.catalogue.topics import name_of
from offload_core.storage.tier import Tier, open_like, open_store
from offload_hooks.errors import BadLengthError, InvalidKeyError, ObjectNotFoundError, OptionError, placed
from offload_hooks.schemas import SchemaHistory

SUFFIX = ".schemas.json"
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+:")
FOLDER = "schemas"
"""Where a tier's own files of schemas are, below its root."""


class SchemaFiles:
    """Files of schemas in a store: below `folder`, a file per topic, or the one `file`, whatever topic is asked for."""

    def __init__(self, store: Tier, *, folder: str = "", file: str = "") -> None:
        self._store, self._folder, self._file = store, folder, file

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._store!r})"

    def history(self, topic: str) -> SchemaHistory | None:
        """See `SchemaProvider`."""
        found = self._find(topic)
        if found is None:
            return None
        key, size = found
        with placed(key=key):
            if size > MOST_BYTES:
                raise BadLengthError(
                    "a file of schemas is too large", expected=f"at most {MOST_BYTES} bytes", found=size
                )
            data = self._store.read_range(key, 0, size) if size else b""
            _, history = parse_saved(bytes(data))
        return history

    def save(self, topic: str, history: SchemaHistory) -> str:
        """Save the whole history of a topic; answers the key of its file. An older one is replaced."""
        key = self._key(topic)
        self._store.write_index(key, saved_bytes(topic, history), content_type="application/json")
        return key

    def close(self) -> None:
        """Give back the store's connections."""
        self._store.close()

    def _key(self, topic: str) -> str:
        return self._file or f"{self._folder}{saved_key(parse_topic(topic))}"

    def _find(self, topic: str) -> tuple[str, int] | None:
        """A topic's file and its size; None if there is none."""
        key = self._key(topic)
        try:
            return key, self._store.stat(key).size_bytes
        except ObjectNotFoundError:
            if self._file:
                raise
        whole = f"{self._folder}{_whole_key(parse_topic(topic))}"
        if whole != key:  # saved by a version that did not shorten names, in a store that takes long ones
            with suppress(ObjectNotFoundError, InvalidKeyError):
                return whole, self._store.stat(whole).size_bytes
        return None


class SavedSchemas(SchemaFiles):
    """The schema provider `saved`.

    Args:
        path: path or URL of a directory, or of one file (its name ends with `.json`), whatever topic is asked for.
        tier: a tier that is open: a URL of its driver is opened with `options`, another with none.
        options: of the driver of the URL.
    """

    def __init__(self, path: str | os.PathLike[str], *, tier: Tier | None = None, **options: Any) -> None:
        text = os.fspath(path)
        if text.endswith(".json") and not _URL.match(text):
            text = str(Path(text).expanduser().resolve())  # the file itself, where a link leads to it
        folder, file = text, ""
        if text.endswith(".json"):
            before, slash, file = text.rpartition("/")
            folder = before or ("/" if slash else ".")
        if not folder:
            raise OptionError("where are the schemas?", expected="a directory or a file of schemas")
        if "/" not in folder:
            folder = os.path.abspath(folder)  # noqa: PTH100 - of a path, never a driver's name
        store = open_store(folder, **options) if tier is None else open_like(tier, folder, **options)
        super().__init__(store, file=file)


def saved_in(tier: Tier) -> SchemaFiles:
    """The schemas beside a tier, in its folder `schemas`."""
    return SchemaFiles(tier, folder=f"{FOLDER}/")


def saved_key(topic: TopicName) -> str:
    """The name of a topic's file, below the directory of schemas."""
    tenant, namespace, local = _parts(topic)
    return f"{tenant}/{namespace}/{name_of(local, after=SUFFIX)}"


def _whole_key(topic: TopicName) -> str:
    tenant, namespace, local = _parts(topic)
    return f"{tenant}/{namespace}/{quote(local, safe='')}{SUFFIX}"


def _parts(topic: TopicName) -> list[str]:
    return topic.base.removeprefix("persistent://").split("/", 2)
