"""A local tier's folder, by the back door of the conformance suite."""

from __future__ import annotations

import json


class Folder:
    """Plain files, with their metadata beside them."""

    def __init__(self, root):
        self._root = root

    def put(self, key, data, user_metadata, content_type):
        path = self._root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        about = {"version": 1, "content_type": content_type, "user_metadata": dict(user_metadata)}
        path.with_name(f"{path.name}.metadata.json").write_text(json.dumps(about))
        path.write_bytes(data)

    def get(self, key):
        path = self._root / key
        return path.read_bytes() if path.is_file() else None

    def keys(self):
        return {str(path.relative_to(self._root)) for path in self._root.rglob("*") if path.is_file()}
