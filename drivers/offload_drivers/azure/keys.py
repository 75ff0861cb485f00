"""Keys of a tier in a container: what `object_keys` refuses, and what Azure's blob service cannot name."""

from __future__ import annotations

from offload_drivers.object_keys import KeySpace, checked_prefix
from offload_hooks.errors import InvalidKeyError, OptionError

MAX_PARTS = 254


class BlobKeySpace(KeySpace):
    """The keys of one tier. Azure's servers and clients drop dots at the end of a part, so these are refused."""

    def _fault(self, key: str) -> str | None:
        fault = super()._fault(key)
        if fault:
            return fault
        if key.endswith(".") or "./" in key:
            return "have a part that ends with a dot, in Azure"
        if any("\x80" <= character <= "\x9f" for character in key):
            return "hold a control character"
        if (self.prefix + key).count("/") >= MAX_PARTS:
            return f"have more than {MAX_PARTS} parts with the tier's prefix, in Azure"
        return None


def checked_blob_prefix(prefix: str) -> str:
    """An option `prefix` as a `BlobKeySpace` has it; `OptionError` for what is none."""
    checked = checked_prefix(prefix)
    try:
        BlobKeySpace().name(checked.removesuffix("/") or "none")
    except InvalidKeyError as error:
        raise OptionError(f"the option 'prefix' is no prefix: {error.what}", found=repr(prefix)) from error
    return checked
